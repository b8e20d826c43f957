moe_unit_test(all_to_all moert)

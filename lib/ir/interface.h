//===- interface.h - what a graph's function says of its arguments --------------------------------===//
//
// moe-declare-interface writes it, while the functions still have their tensors, into the attribute `moe.interface` of each; moe-export-graph
// reads it when only pointers are left.
//
//===----------------------------------------------------------------------------------------------===//
#ifndef MOE_IR_INTERFACE_H
#define MOE_IR_INTERFACE_H

// Attributes of arguments that a graph's author writes
#define MOE_ARGUMENT_NAME "moe.name" // string; default "arg<number>"
#define MOE_ARGUMENT_DIMS "moe.dims" // array of strings: a name for each dynamic dimension, "" for none
#define MOE_ARGUMENT_ROLE "moe.role" // "in", "out" or "inout"; default: what the function does with it

#define MOE_INTERFACE                                                                                                                                \
  "moe.interface" // on a function: array of dictionaries, one for each argument but the context:
                  //   name, type, role ("in" ...), memory ("device", "host", "symmetric", "value"), symbols (one for each dimension, "" for none),
                  //   workspace (max_num_tokens, dispatch_, combine_bytes_per_token, eplb_stats_num_experts, ep_size), if it is known
#define MOE_TARGET "moe.target"                 // on the module: "host", "sm_90a"
#define MOE_KERNEL "moe.kernel"                 // on an op: its kernel key
#define MOE_KERNELS "moe.kernels"               // on the module: all keys
#define MOE_NOT_CAPTURABLE "moe.not_capturable" // on a function: it has ops that cannot be captured in a CUDA graph

// The slots that hold the kernel of each key, in the order of MOE_KERNELS: calls load theirs, and the runtime fills them when it loads the graph.
#define MOE_KERNEL_SLOTS "moert_kernel_slots"

#endif

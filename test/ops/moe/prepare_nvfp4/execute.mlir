// RUN: moe-compile %s -o %t.so
// RUN: %python %S/Inputs/panels.py %t
// RUN: moe-run %t.so --function gate_up --input data=%t.data.npy --input scales=%t.scales.npy --size data_panels.0=4 --size scale_panels.0=4 --expect data_panels=%t.data_panels.npy --expect scale_panels=%t.scale_panels.npy
// RUN: moe-run %t.so --function gate_up --random 1 --size data.0=0 --size scales.0=0 --size data_panels.0=0 --size scale_panels.0=0
// RUN: moe-run %t.so --function fragments --input codes=%t.codes.npy --input scales=%t.code_scales.npy --size fragments.0=2 --expect fragments=%t.fragments.npy
// RUN: moe-run %t.so --function fragments --random 1 --size codes.0=0 --size scales.0=0 --size fragments.0=0

func.func @gate_up(%data: tensor<?x256x256xi8> {moe.name = "data"}, %scales: tensor<?x256x32xi8> {moe.name = "scales"},
                   %data_panels: tensor<?x256x128xi8> {moe.name = "data_panels"}, %scale_panels: tensor<?x32x128xi8> {moe.name = "scale_panels"},
                   %ctx: !moe.context) -> (tensor<?x256x128xi8>, tensor<?x32x128xi8>) {
  %0 = moe.prepare_nvfp4 source(%data : tensor<?x256x256xi8>) outs(%data_panels : tensor<?x256x128xi8>) context(%ctx) {layout = "w1_gate_up_data"} -> tensor<?x256x128xi8>
  %1 = moe.prepare_nvfp4 source(%scales : tensor<?x256x32xi8>) outs(%scale_panels : tensor<?x32x128xi8>) context(%ctx) {layout = "w1_gate_up_scales"} -> tensor<?x32x128xi8>
  return %0, %1 : tensor<?x256x128xi8>, tensor<?x32x128xi8>
}

func.func @fragments(%codes: tensor<?x64x64xi8> {moe.name = "codes"}, %scales: tensor<?x64x8xi8> {moe.name = "scales"},
                     %fragments: tensor<?x36x128xi8> {moe.name = "fragments"}, %ctx: !moe.context) -> tensor<?x36x128xi8> {
  %0 = moe.prepare_nvfp4 source(%codes : tensor<?x64x64xi8>) scales(%scales : tensor<?x64x8xi8>) outs(%fragments : tensor<?x36x128xi8>) context(%ctx) {layout = "w2_fragments"} -> tensor<?x36x128xi8>
  return %0 : tensor<?x36x128xi8>
}

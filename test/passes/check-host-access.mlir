// RUN: moe-opt %s --split-input-file --verify-diagnostics --moe-check-host-access

// Every way to access one element.
func.func @accesses(%x: memref<4xf32>, %i: index, %ctx: !moe.context) {
  // expected-error@+1 {{'memref.load' op host code would read an element of a tensor, which may lie on a device: do it inside a linalg op or scf.forall, or pass a memref in #moe.host}}
  %0 = memref.load %x[%i] : memref<4xf32>
  // expected-error@+1 {{'memref.store' op host code would write an element of a tensor, which may lie on a device: do it inside a linalg op or scf.forall}}
  memref.store %0, %x[%i] : memref<4xf32>
  // expected-error@+1 {{'affine.load' op host code would read an element of a tensor}}
  %1 = affine.load %x[0] : memref<4xf32>
  // expected-error@+1 {{'affine.store' op host code would write an element of a tensor}}
  affine.store %1, %x[1] : memref<4xf32>
  // expected-error@+1 {{'memref.atomic_rmw' op host code would write an element of a tensor}}
  %2 = memref.atomic_rmw addf %1, %x[%i] : (f32, memref<4xf32>) -> f32
  // expected-error@+1 {{'memref.generic_atomic_rmw' op host code would write an element of a tensor}}
  %3 = memref.generic_atomic_rmw %x[%i] : memref<4xf32> {
  ^bb0(%old: f32):
    memref.atomic_yield %old : f32
  }
  return
}

// -----

// In a loop of the host it is the host's work all the same.
func.func @in_for(%x: memref<4xf32>, %ctx: !moe.context) {
  affine.for %i = 0 to 4 {
    // expected-error@+1 {{'affine.load' op host code would read an element of a tensor}}
    %0 = affine.load %x[%i] : memref<4xf32>
  }
  return
}

// -----

// The same a vector at a time.
func.func @vectors(%x: memref<8xf32>, %i: index, %mask: vector<8xi1>, %which: vector<8xi32>, %ctx: !moe.context) {
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{'vector.load' op host code would read an element of a tensor}}
  %0 = vector.load %x[%i] : memref<8xf32>, vector<8xf32>
  // expected-error@+1 {{'vector.transfer_read' op host code would read an element of a tensor}}
  %1 = vector.transfer_read %x[%i], %zero : memref<8xf32>, vector<8xf32>
  // expected-error@+1 {{'vector.gather' op host code would read an element of a tensor}}
  %2 = vector.gather %x[%i] [%which], %mask, %0 : memref<8xf32>, vector<8xi32>, vector<8xi1>, vector<8xf32> into vector<8xf32>
  // expected-error@+1 {{'vector.store' op host code would write an element of a tensor}}
  vector.store %1, %x[%i] : memref<8xf32>, vector<8xf32>
  // expected-error@+1 {{'vector.maskedstore' op host code would write an element of a tensor}}
  vector.maskedstore %x[%i], %mask, %2 : memref<8xf32>, vector<8xi1>, vector<8xf32>
  return
}

// -----

// What the device does, it does not do to host memory.
func.func @host_memory(%x: memref<4xf32>, %host: memref<4xf32, #moe.host>, %n: index, %ctx: !moe.context) {
  // expected-error@+1 {{'linalg.copy' op operand #0 is in #moe.host, which devices do not address: use scf.for with memref.load and memref.store for it}}
  linalg.copy ins(%host : memref<4xf32, #moe.host>) outs(%x : memref<4xf32>)
  // expected-error@+1 {{'memref.copy' op is between #moe.host and memory that may lie on a device: pass the values as arguments of the function}}
  memref.copy %x, %host : memref<4xf32> to memref<4xf32, #moe.host>
  // expected-error@+1 {{'memref.memory_space_cast' op is between #moe.host and memory that may lie on a device}}
  %cast = memref.memory_space_cast %host : memref<4xf32, #moe.host> to memref<4xf32>
  scf.forall (%i) in (%n) {
    // expected-error@+1 {{'memref.load' op the buffer is in #moe.host, which devices do not address}}
    %0 = memref.load %host[%i] : memref<4xf32, #moe.host>
    memref.store %0, %x[%i] : memref<4xf32>
  }
  return
}

// -----

// Host memory, the stack, constants, and loops of the device.
memref.global "private" constant @table : memref<4xf32> = dense<1.0>
func.func @allowed(%x: memref<4xf32>, %host: memref<4xf32, #moe.host>, %n: index, %ctx: !moe.context) {
  %table = memref.get_global @table : memref<4xf32>
  %stack = memref.alloca() : memref<4xf32>
  %0 = memref.load %table[%n] : memref<4xf32>
  affine.store %0, %stack[0] : memref<4xf32>
  affine.store %0, %host[0] : memref<4xf32, #moe.host>
  scf.forall (%i) in (%n) {
    memref.store %0, %x[%i] : memref<4xf32>
  }
  affine.parallel (%i) = (0) to (4) {
    affine.store %0, %x[%i] : memref<4xf32>
  }
  return
}

// -----

// A circle of casts, which unreachable code can have, ends.
func.func @circle(%ctx: !moe.context) {
  return
^unreachable:
  %c0 = arith.constant 0 : index
  %a = memref.cast %b : memref<?xf32> to memref<4xf32>
  %b = memref.cast %a : memref<4xf32> to memref<?xf32>
  // expected-error@+1 {{'memref.load' op host code would read an element of a tensor}}
  %0 = memref.load %a[%c0] : memref<4xf32>
  cf.br ^unreachable
}

# dlsym(handle, name): asks `route`, with the return address as its third argument, and then returns its first word, or jumps there with the registers
# and the stack as they came.
.cfi_startproc
stp x29, x30, [sp, -32]!
.cfi_def_cfa_offset 32
.cfi_offset x29, -32
.cfi_offset x30, -24
stp x0, x1, [sp, 16]
mov x29, sp
mov x2, x30
bl {route}
cbz x1, 2f
mov x16, x0
ldp x0, x1, [sp, 16]
.cfi_remember_state
ldp x29, x30, [sp], 32
.cfi_def_cfa_offset 0
.cfi_restore x29
.cfi_restore x30
br x16
2:
.cfi_restore_state
ldp x29, x30, [sp], 32
.cfi_def_cfa_offset 0
.cfi_restore x29
.cfi_restore x30
ret
.cfi_endproc

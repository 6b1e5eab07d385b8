# dlsym(handle, name): asks `route`, with the return address as its third argument, and then returns its first word, or jumps there with the registers
# and the stack as they came.
.cfi_startproc
push rdi
.cfi_adjust_cfa_offset 8
push rsi
.cfi_adjust_cfa_offset 8
sub rsp, 8
.cfi_adjust_cfa_offset 8
mov rdx, qword ptr [rsp + 24]
call {route}
add rsp, 8
.cfi_adjust_cfa_offset -8
pop rsi
.cfi_adjust_cfa_offset -8
pop rdi
.cfi_adjust_cfa_offset -8
test rdx, rdx
jz 2f
jmp rax
2:
ret
.cfi_endproc

# A trampoline: it hands the hook its last parameter, an Arrival, in the registers in which the ABI passes it: the vector registers, since every other
# argument is an integer or a pointer. r10 is nobody's. So nothing is stored that a signal handler with calls of its own could overwrite.
#
# Tools that patch code (UCX, Dobby, Frida) replace the first 5 to 16 bytes of a function by a jump, and run elsewhere the instructions that were there.
# So the first 20 bytes are instructions that each of them can move and that change nothing: rax carries no argument.
.rept 4
mov eax, 0
.endr
lea r10, [rip + {slots} + p2p_offset]
movq xmm0, r10
movq xmm1, rsp
jmp {hook}

# A trampoline: it hands the hook its last parameter, an Arrival, in the registers in which the ABI passes it: d0 to d2, since every other argument is
# an integer or a pointer. x16 and x17 are nobody's between two functions. So nothing is stored that a signal handler with calls of its own could overwrite.
#
# Tools that patch code replace the first 4 to 16 bytes of a function by a jump, and run elsewhere the instructions that were there. So the first 20 bytes
# are instructions that each of them can move.
.rept 5
nop
.endr
adrp x16, {slots} + p2p_offset
add x16, x16, :lo12:{slots} + p2p_offset
mov x17, sp
fmov d0, x16
fmov d1, x17
fmov d2, x30
b {hook}

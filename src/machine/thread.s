# The thread's block: zeros, in static thread-local storage.
.section .tbss.p2p_thread,"awT",@nobits
.globl p2p_thread
.hidden p2p_thread
.type p2p_thread, @object
.size p2p_thread, {size}
.balign {align}
p2p_thread:
.zero {size}
.text

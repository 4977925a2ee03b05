//go:build !race && !purego

#include "textflag.h"

// func ticks(address uintptr) uint64
TEXT ·ticks(SB), NOSPLIT, $0-16
	MOVQ       address+0(FP), AX
	PREFETCHT0 (AX)
	RDTSC
	SHLQ       $32, DX
	ORQ        DX, AX
	MOVQ       AX, ret+8(FP)
	RET

// func ticksAreSteady() bool
// CPUID 0x80000007, EDX bit 8: the counter's rate does not depend on the
// processor's power state.
TEXT ·ticksAreSteady(SB), NOSPLIT, $0-1
	MOVB $0, ret+0(FP)
	MOVL $0x80000000, AX
	XORL CX, CX
	CPUID
	CMPL AX, $0x80000007
	JCS  done
	MOVL $0x80000007, AX
	XORL CX, CX
	CPUID
	SHRL $8, DX
	ANDL $1, DX
	MOVB DX, ret+0(FP)
done:
	RET

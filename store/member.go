package store

import (
	"encoding/binary"
	"math/bits"
)

// memberBits is the size of a Member: Lua's numbers hold it exactly.
const memberBits = 52

// MemberOf returns the [Op.Member] of a value: a number from 1 to 2^52-1 that says which
// value it is, without containing it. Two values have the same number with a
// probability of 2^-52; one then passes as the other. Among 65,536 values that
// happens with a probability of 5·10^-7.
//
// It is SipHash-2-4 under secret, which all processes that share a store must have in
// common, and which clients must not know: with it they could find values that count as one.
func MemberOf(secret [16]byte, value string) uint64 {
	h := sipHash(binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:]), value)
	return max(h>>(64-memberBits), 1)
}

// sipHash is SipHash-2-4 (Aumasson and Bernstein 2012).
func sipHash(k0, k1 uint64, text string) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	size := uint64(len(text))
	for ; len(text) >= 8; text = text[8:] {
		sipWord(&v, uint64(text[0])|uint64(text[1])<<8|uint64(text[2])<<16|uint64(text[3])<<24|
			uint64(text[4])<<32|uint64(text[5])<<40|uint64(text[6])<<48|uint64(text[7])<<56)
	}
	last := size << 56
	for i := range len(text) {
		last |= uint64(text[i]) << (8 * i)
	}
	sipWord(&v, last)
	v[2] ^= 0xff
	for range 4 {
		sipRound(&v)
	}
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

func sipWord(v *[4]uint64, word uint64) {
	v[3] ^= word
	sipRound(v)
	sipRound(v)
	v[0] ^= word
}

func sipRound(v *[4]uint64) {
	v[0] += v[1]
	v[2] += v[3]
	v[1] = bits.RotateLeft64(v[1], 13) ^ v[0]
	v[3] = bits.RotateLeft64(v[3], 16) ^ v[2]
	v[0] = bits.RotateLeft64(v[0], 32)
	v[2] += v[1]
	v[0] += v[3]
	v[1] = bits.RotateLeft64(v[1], 17) ^ v[2]
	v[3] = bits.RotateLeft64(v[3], 21) ^ v[0]
	v[2] = bits.RotateLeft64(v[2], 32)
}

// Validate returns why a store cannot execute o: [ErrInvalidLimit], [ErrInvalidCost] or
// [ErrNoMember].
func (o *Op) Validate() error {
	switch {
	case !o.Rule.Valid():
		return o.Rule.Validate()
	case o.Cost < 0:
		return ErrInvalidCost
	case o.Leave > 0 && !o.Rule.CanKeep():
		return errKeepsNothing
	case o.shares() && !o.shareIsValid():
		return errShare
	case o.Rule.Algorithm != Distinct || o.Rule.Unlimited:
	case o.Member>>memberBits > 0:
		return ErrNoMember
	case o.Member == 0 && o.Cost > 0:
		switch o.Kind {
		case KindTake, KindTakeUpTo, KindCharge, KindReserve, KindRefund:
			return ErrNoMember
		case KindPeek, KindGrant, KindReset, KindRelease, KindRenew, KindDraw, KindTimes:
		}
	}
	return nil
}

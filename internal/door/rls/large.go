package rls

import (
	"context"

	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/request/described"
)

// What a request takes while it is answered, about. A descriptor of two bytes on
// the wire becomes one that rules are matched against, with their verdicts.
const (
	descriptorCost = 2 << 10
	byteCost       = 16
	jsonByteCost   = 48
)

// load reads the request off the wire when there is room for it. What is wrong
// with it is in c.wrong, and the error that of waiting.
func (c *call) load(ctx context.Context) (err error) {
	if c.took, err = grpcserver.Enter(ctx, &c.service.room, weigh(grpcserver.Whole(c.wire), c.wire.Len())); err != nil {
		return err
	}
	c.wrong = c.request.decode(c.wire.Materialize()) // a copy of its own, for texts to point into
	c.unwire()
	return nil
}

// unwire lets go of what came on the wire.
func (c *call) unwire() {
	c.wire.Free()
	c.wire = nil
}

// weigh tells what a RateLimitRequest takes; see [grpcserver.Reader].
func weigh(data []byte, size int) int64 {
	descriptors := min(size/2, maxDescriptors)
	if data != nil {
		descriptors = described.Elements(data, 2, maxDescriptors)
	}
	return int64(descriptors)*descriptorCost + int64(size)*byteCost
}

package rls

import (
	"net/http"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/internal/door/grpcserver"
	"github.com/headgate/headgate/internal/transport/membound"
)

// maxJSON is the largest body of POST /json in bytes.
const maxJSON = 1 << 20

// JSON returns the handler of POST /json, for callers without gRPC. It takes a
// RateLimitRequest in protobuf's JSON form and answers with a RateLimitResponse. The
// status is 200, 429 over the limit, 400 for an invalid request, 413 for one that is
// too large, and 408 for one that does not arrive in time. The response_headers_to_add
// are also set on the answer.
//
// room limits the memory of all bodies larger than 16 KiB; nil means 64 MiB.
func (s *Service) JSON(room *membound.Bound) http.Handler {
	bodies := answer.NewBodies(room)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveJSON(w, r, bodies) })
}

func (s *Service) serveJSON(w http.ResponseWriter, r *http.Request, bodies *answer.Bodies) {
	var in answer.Body
	defer in.Release()
	if err := bodies.Read(&in, w, r, maxJSON); err != nil {
		in.Release() // now, not after the refusal has been read
		answer.Unread(w, r, err)
		return
	}
	taken, err := s.room.Enter(r.Context(), int64(len(in.Bytes))*jsonByteCost, grpcserver.DefaultPatience)
	if err != nil {
		answer.Unread(w, r, err)
		return
	}
	defer s.room.Leave(taken)
	var request envoy.RateLimitRequest
	if err := protojson.Unmarshal(in.Bytes, &request); err != nil {
		answer.Problem(w, http.StatusBadRequest, "the body is not a valid RateLimitRequest: "+err.Error())
		return
	}
	wire, err := proto.Marshal(&request)
	if err != nil {
		answer.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	c, _ := s.calls.Get().(*call)
	defer c.release()
	c.wrong = c.request.decode(wire)
	if err := s.answer(r.Context(), c); err != nil {
		status := http.StatusInternalServerError
		if grpcstatus.Code(err) == codes.InvalidArgument {
			status = http.StatusBadRequest
		}
		answer.Problem(w, status, grpcstatus.Convert(err).Message())
		return
	}
	c.writeJSON(w)
}

// writeJSON answers with the response in c.out.
func (c *call) writeJSON(w http.ResponseWriter) {
	var response envoy.RateLimitResponse
	if err := proto.Unmarshal(c.out, &response); err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the response could not be encoded")
		return
	}
	body, err := protojson.Marshal(&response)
	if err != nil {
		answer.Problem(w, http.StatusInternalServerError, "the response could not be encoded")
		return
	}
	for _, h := range response.GetResponseHeadersToAdd() {
		w.Header().Set(h.GetKey(), h.GetValue())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if c.over {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(append(body, '\n')) // an error means that the caller has left
}

package proxy

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/answer"
	"github.com/headgate/headgate/store"
)

// The fields of a gRPC answer, which are header fields if it has no message.
const (
	grpcMessage = "Grpc-Message"
	grpcDetails = "Grpc-Status-Details-Bin"
)

// grpcCaller is the http.ResponseWriter of a gRPC call. Our own answers to it are a gRPC
// status: HTTP 200 with the code in the header or, for gRPC-Web, in the body.
type grpcCaller struct {
	http.ResponseWriter
	contentType string // of the call, and so of the answer
	framing     framing
}

// framing is how an answer ends.
type framing uint8

const (
	native  framing = iota // with a trailer
	web                    // gRPC-Web: with a frame in the body
	webText                // the same in base64
)

// toCaller returns w or, for a gRPC call, a writer that makes our own answers a gRPC
// status.
func toCaller(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	fields := r.Header["Content-Type"]
	if len(fields) == 0 || r.Method != http.MethodPost {
		return w
	}
	const grpc = "application/grpc"
	kind, _, _ := strings.Cut(fields[0], ";")
	kind = strings.TrimSpace(kind)
	if len(kind) < len(grpc) || !strings.EqualFold(kind[:len(grpc)], grpc) {
		return w
	}
	suffix, _, _ := strings.Cut(strings.ToLower(kind[len(grpc):]), "+")
	c := &grpcCaller{ResponseWriter: w, contentType: kind}
	switch suffix {
	case "":
	case "-web":
		c.framing = web
	case "-web-text":
		c.framing = webText
	default:
		return w
	}
	return c
}

// Unwrap supports http.ResponseController.
func (c *grpcCaller) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Translate implements [answer.Translator].
func (c *grpcCaller) Translate(m answer.Meaning) {
	h := c.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		delete(h, name)
	}
	h["Content-Type"] = []string{c.contentType}
	s := statusOf(m)
	fields := [][2]string{{grpcStatus, strconv.Itoa(int(s.Code()))}}
	if s.Message() != "" {
		fields = append(fields, [2]string{grpcMessage, escaped(s.Message())})
	}
	if len(s.Proto().GetDetails()) > 0 {
		if text, err := proto.Marshal(s.Proto()); err == nil {
			fields = append(fields, [2]string{grpcDetails, base64.RawStdEncoding.EncodeToString(text)})
		}
	}
	// A caller takes success without a message for a broken answer. A message without
	// bytes is valid whatever its type: all its fields have their defaults.
	var message []byte
	if s.Code() == codes.OK {
		message = make([]byte, frameHeader)
	}
	if c.framing == native {
		c.end(message, fields)
		return
	}
	c.endWeb(message, fields)
}

// end answers with the fields in the header, or after a message in the trailer.
func (c *grpcCaller) end(message []byte, fields [][2]string) {
	prefix := ""
	if message != nil {
		c.WriteHeader(http.StatusOK)
		_, _ = c.Write(message)                   // a client that went away has no use for the error
		_ = http.NewResponseController(c).Flush() // otherwise net/http adds a length, which gRPC servers do not send
		prefix = http.TrailerPrefix
	}
	for _, f := range fields {
		c.Header().Set(prefix+f[0], f[1])
	}
	if message == nil {
		c.WriteHeader(http.StatusOK)
	}
}

// A frame has a byte of flags and the length of what follows in four.
const (
	frameHeader  = 5
	trailerFrame = 1 << 7 // the flag of the frame with the fields, in gRPC-Web
)

// endWeb answers as gRPC-Web does, with the fields in the last frame of the body.
func (c *grpcCaller) endWeb(message []byte, fields [][2]string) {
	var text strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&text, "%s: %s\r\n", strings.ToLower(f[0]), f[1])
	}
	body := append(message, trailerFrame)
	body = binary.BigEndian.AppendUint32(body, uint32(text.Len()))
	body = append(body, text.String()...)
	if c.framing == webText {
		body = base64.StdEncoding.AppendEncode(nil, body)
	}
	c.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.WriteHeader(http.StatusOK)
	_, _ = c.Write(body) // as above
}

// statusOf returns m as package grpclimit would answer it.
func statusOf(m answer.Meaning) *status.Status {
	code := codeOf(m.Status)
	var details []protoadapt.MessageV1
	if m.Refused {
		if code = codes.ResourceExhausted; m.Reason == headgate.ReasonFailClosed || m.Reason == store.ReasonHeadroom {
			code = codes.Unavailable
		}
	}
	if m.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(m.RetryAfter)})
	}
	if m.Refused && code == codes.ResourceExhausted {
		quota := &errdetails.QuotaFailure{}
		for i := range m.Violated {
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{
				Subject: "limit:" + m.Violated[i].Name, Description: m.Violated[i].Limit.String(),
			})
		}
		details = append(details, quota)
	}
	if m.Refused && m.Reason == store.ReasonHeadroom {
		details = append(details, &errdetails.ErrorInfo{Reason: "HEADROOM", Domain: "headgate"})
	}
	s := status.New(code, m.Detail)
	if detailed, err := s.WithDetails(details...); err == nil { // it refuses details of OK
		return detailed
	}
	return s
}

// codeOf returns the code for an answer with an HTTP status.
func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound:
		return codes.NotFound
	case http.StatusRequestTimeout:
		return codes.DeadlineExceeded
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge:
		return codes.ResourceExhausted
	case http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return codes.Unavailable
	case http.StatusInternalServerError, http.StatusLoopDetected:
		return codes.Internal
	}
	if httpStatus < http.StatusMultipleChoices {
		return codes.OK
	}
	return codes.Unknown
}

// escaped returns text as a value of grpc-message: percent-encoded, except for printable
// ASCII.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

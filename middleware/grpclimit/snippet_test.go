package grpclimit_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/middleware/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

// TestSnippetOfTheDocs: what docs/connect/middleware.md and the package's comment show is what is
// compiled here.
func TestSnippetOfTheDocs(t *testing.T) {
	limiter := headgate.New(memory.New())
	limit := headgate.PerSecond(100).WithBurst(500)
	byKey := grpclimit.ByMetadata("x-api-key")
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServer(limiter, limit, byKey)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServer(limiter, limit, byKey)),
	)
	server.Stop()
	_, after, _ := strings.Cut(read(t, "snippet_test.go"), "func TestSnippetOfTheDocs(t *testing.T) {\n")
	code, _, _ := strings.Cut(after, "\tserver.Stop()")
	code = strings.TrimSpace(strings.ReplaceAll(code, "\n\t", "\n"))
	if !strings.Contains(read(t, "../../docs/connect/middleware.md"), code) {
		t.Error("docs/connect/middleware.md shows something else")
	}
	if comment := strings.ReplaceAll(code, "\n", "\n//\t"); !strings.Contains(read(t, "doc.go"), comment) {
		t.Error("doc.go shows something else")
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

package conformance

import "testing"

// TestEdges: what the steps cannot say, as it is about one language.
func TestEdges(t *testing.T) {
	for name, command := range map[string]func(*testing.T) []string{
		"python": func(t *testing.T) []string {
			return []string{program(t, "python3"), "../python/edges.py"}
		},
		"java": func(t *testing.T) []string {
			return []string{program(t, "java"), "-cp", builtJava(t, "main", "test"), "io.github.headgate.Edges"}
		},
		"node": func(t *testing.T) []string {
			return []string{program(t, "node"), "../node/edges.mjs", builtNode(t)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runIn(t, ".", []string{"PYTHONDONTWRITEBYTECODE=1"}, append(command(t), "http://"+start(t, "127.0.0.1:0").address)...)
		})
	}
}

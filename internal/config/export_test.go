package config

// EnvoyVariables returns the names of all supported variables of envoyproxy/ratelimit.
func EnvoyVariables() []string {
	var names []string
	for _, v := range envoyVariables() {
		names = append(names, v.name)
	}
	return names
}

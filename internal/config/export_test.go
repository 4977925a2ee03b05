package config

// EnvoyVariables returns the names of all variables of envoyproxy/ratelimit
// that have a place here.
func EnvoyVariables() []string {
	var names []string
	for _, v := range envoyVariables() {
		names = append(names, v.name)
	}
	return names
}

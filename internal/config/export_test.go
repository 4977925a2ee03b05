package config

// EnvoyVariables returns the names of all supported variables of envoyproxy/ratelimit.
func EnvoyVariables() []string {
	var names []string
	for _, v := range envoyVariables() {
		names = append(names, v.name)
	}
	return names
}

// Settings returns the names of all settings, with those of the doors.
func Settings(doors []Section) []string {
	var names []string
	for _, s := range Closed(doors).settings() {
		names = append(names, s.key)
	}
	return names
}

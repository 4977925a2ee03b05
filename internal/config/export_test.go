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

// A Row is what docs/reference/settings.md says of a setting.
type Row struct{ Key, Values, Default, Meaning string }

// Rows returns the rows of all settings, with those of the doors.
func Rows(doors []Section) []Row {
	var rows []Row
	for _, s := range Closed(doors).settings() {
		rows = append(rows, Row{s.key, s.values, s.standard, s.meaning})
	}
	return rows
}

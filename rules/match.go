package rules

type matcher struct{}

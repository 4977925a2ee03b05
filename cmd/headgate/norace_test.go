//go:build !race

package main

// killEach is how many requests each tenant sends.
const killEach = 250

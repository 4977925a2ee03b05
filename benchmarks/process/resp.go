package process

import "github.com/tidwall/redcon"

// RESPFloor serves what costs redcon least: five integers, of nothing.
func RESPFloor(address string) error {
	return redcon.ListenAndServe(address,
		func(c redcon.Conn, _ redcon.Command) {
			c.WriteArray(5)
			for _, n := range [...]int{0, 1_000_001, 1_000_000, -1, 1} {
				c.WriteInt(n)
			}
		},
		func(redcon.Conn) bool { return true }, func(redcon.Conn, error) {})
}

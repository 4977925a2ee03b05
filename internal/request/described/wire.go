package described

import "google.golang.org/protobuf/encoding/protowire"

// Elements returns how many messages a message of protobuf has in a field, or
// most if there are more. It looks no further than the first mistake.
func Elements(data []byte, field protowire.Number, most int) (n int) {
	for len(data) > 0 && n < most {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return n
		}
		data = data[size:]
		if size = protowire.ConsumeFieldValue(number, kind, data); size < 0 {
			return n
		}
		data = data[size:]
		if number == field && kind == protowire.BytesType {
			n++
		}
	}
	return n
}

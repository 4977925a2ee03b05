package rate

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"5/minute":          {N: 5, Period: time.Minute, Unit: headgate.Minute},
		"300/3h":            {N: 300, Period: 3 * time.Hour},
		"60/30s":            {N: 60, Period: 30 * time.Second},
		"2/week":            {N: 2, Period: week, Unit: headgate.Week},
		"1_000/s":           {N: 1000, Period: time.Second},
		"100 / 1m30s":       {N: 100, Period: 90 * time.Second},
		" 100/ 1 h 30 min ": {N: 100, Period: 90 * time.Minute},
		"5/7d":              {N: 5, Period: 7 * day},
		"5/1d":              {N: 5, Period: day},
		"5/DAY":             {N: 5, Period: day, Unit: headgate.Day},
		"5/Hours":           {N: 5, Period: time.Hour, Unit: headgate.Hour},
		"5/mo":              {N: 5, Period: 30 * day, Unit: headgate.Month},
		"5/y":               {N: 5, Period: 365 * day, Unit: headgate.Year},
		"5/100ms":           {N: 5, Period: 100 * time.Millisecond},
		"5/250µs":           {N: 5, Period: 250 * time.Microsecond},
		"5/1_000s":          {N: 5, Period: 1000 * time.Second},
		"0/second":          {Period: time.Second},
		"007/s":             {N: 7, Period: time.Second},
		"1099511627776/s":   {N: store.MaxLimit, Period: time.Second},
		"unlimited":         {Unlimited: true},
		" Unlimited ":       {Unlimited: true},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := Parse(want.String()); err != nil || again != want {
			t.Errorf("%+v is written %q and read as %+v, %v", want, want, again, err)
		}
	}
}

func TestParseRateExplains(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "the rate is empty: want N/unit, such as 5/minute",
		"  ":                           "the rate is empty: want N/unit, such as 5/minute",
		"5":                            `invalid rate "5": want N/unit, such as 5/minute`,
		"5 per minute":                 "want N/unit, such as 5/minute",
		"unlimted":                     `did you mean "unlimited"?`,
		"/minute":                      "the count before the / is missing: want N/unit, such as 5/minute",
		"5/":                           "the period after the / is missing",
		"5/ ":                          "the period after the / is missing",
		"5/minuet":                     `unknown unit "minuet", did you mean "minute"?`,
		"5/secnod":                     `did you mean "second"?`,
		"5/fortnight":                  "unknown unit",
		"5/M":                          "write min for minute or mo for month",
		"5/3M":                         "write min for minute or mo for month",
		"-5/s":                         "negative",
		"+5/s":                         "want a whole number",
		"5.0/s":                        "want a whole number",
		"1,000/s":                      "1_000",
		"1e3/s":                        "want a whole number",
		"0x10/s":                       "want a whole number",
		"NaN/s":                        "want a whole number",
		"Inf/s":                        "want a whole number",
		"١/s":                          "want a whole number",
		"_5/s":                         "want a whole number",
		"5_/s":                         "want a whole number",
		"5__0/s":                       "want a whole number",
		"1099511627777/s":              "too large",
		"9223372036854775808/s":        "too large",
		"5/0s":                         "zero",
		"5/-1s":                        "sign",
		"5/1.5h":                       "want whole numbers",
		"5/1e3s":                       "unknown unit",
		"5/30":                         "needs a unit",
		"5/30s10":                      "needs a unit",
		"5/2months":                    "no fixed length",
		"5/1y":                         "no fixed length",
		"5/408d":                       "too long",
		"5/400d8d":                     "too long",
		"5/99999999999999999999s":      "too long",
		"5/9223372036854775807us9d":    "too long",
		"5/minute/2":                   "unknown unit",
		"5/" + strings.Repeat("x", 99): "unknown unit",
	} {
		got, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRate(%q) = %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

// Whatever is read is a valid rate, which reads the same when written.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"5/minute", "1_000 / 1m30s", "unlimited", "5/0s", "9/9223372036854775807us", "-1/s", "5/3months", "٣/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			if r != (Rate{}) {
				t.Errorf("%q: %+v with %v", s, r, err)
			}
			return
		}
		if !r.Unlimited && (r.N < 0 || r.N > store.MaxLimit || r.Period <= 0 || r.Period > store.MaxPeriod) {
			t.Errorf("%q: %+v is out of range", s, r)
		}
		if again, err := Parse(r.String()); err != nil || again != r {
			t.Errorf("%q is %+v, written %q and read as %+v, %v", s, r, r, again, err)
		}
	})
}

func TestTimesThatGoBy(t *testing.T) {
	for _, row := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{-3 * time.Second, "-3s"},
		{1499 * time.Millisecond, "1s"},
		{24 * time.Hour, "24h"},
		{24*time.Hour - time.Millisecond, "24h"},
		{26*time.Hour + 5*time.Minute, "26h5m"},
		{47*time.Hour + 59*time.Minute + 59*time.Second, "47h59m59s"},
		{50*time.Hour + 29*time.Minute, "2d2h"},
		{720*time.Hour - time.Second, "30d"},
		{719 * time.Hour, "29d23h"},
	} {
		if got := Roughly(row.d); got != row.want {
			t.Errorf("%s: %s, want %s", row.d, got, row.want)
		}
	}
}

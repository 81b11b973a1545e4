package config

import "github.com/spf13/pflag"

// configUsage is the usage of --config, which is not a setting but the file of settings.
const configUsage = "YAML file with settings"

// AddFlags defines a flag for every setting, and --config. Values are only kept there: Load judges
// them, so that a mistyped flag is told together with every other fault.
func AddFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", configUsage)
	defaults := Default()
	for _, s := range settings() {
		f := s.field(&defaults)
		flags.Var(&flagValue{field: f, text: f.get()}, s.name, s.usage+" ("+f.allowed+")")
	}
}

// flagValue is the text that a flag was given.
type flagValue struct {
	field field
	text  string
	given bool
}

// Set takes any text; a list grows with each time its flag is given.
func (v *flagValue) Set(s string) error {
	if v.field.list && v.given {
		s = v.text + "," + s
	}
	v.text, v.given = s, true
	return nil
}

// String returns the text, or *** for a secret: pflag prints it.
func (v *flagValue) String() string {
	if v.field.secret {
		return Secret(v.text).String()
	}
	return v.text
}

// Type returns the word for the value in --help.
func (v *flagValue) Type() string { return v.field.kind }

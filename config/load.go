package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	yamlv3 "go.yaml.in/yaml/v3"
)

// Where Load looks: the prefix of variables, and the file named by a flag or a variable.
const (
	envPrefix  = "MUSIC_"
	configFlag = "config"
)

// Why a setting's value cannot even be read, or is not a setting's at all.
var (
	errNoSetting = errors.New("no such setting (music proxy --help has all)")
	errUnquoted  = errors.New("not a text: put it in quotes")
	errNoScalar  = errors.New("not a single value")
	errBoth      = errors.New("given together with password")
	errEmptyFile = errors.New("the file is empty")
	errNoPairs   = errors.New("not settings with their values: write each on a line of its own, as setting: value")
	errDocuments = errors.New("more than one document: take out the line --- between them")
)

// Load returns the configuration that the flags (of AddFlags, already parsed), the environment and
// the YAML file named by either make together, each over the next and all over Default. The error
// tells every fault that was found, one a line, and the Config is then of no use.
func Load(flags *pflag.FlagSet, environ []string) (Config, error) {
	l := loader{values: koanf.New("."), config: Default(), faulty: map[string]bool{}}
	l.loadFile(configPath(flags, environ))
	l.loadEnviron(environ)
	l.loadFlags(flags)
	l.decode()
	l.readPassword()
	l.readPeerSecret()
	l.faults = append(l.faults, l.config.faultsBut(l.faulty)...)
	return l.config, errors.Join(l.faults...)
}

// loader is one Load on its way: values gathered, then decoded into the configuration.
type loader struct {
	values *koanf.Koanf
	config Config
	faults []error
	faulty map[string]bool // settings already told of, which Validate would only tell of again
}

// configPath returns the file that the flag names, or else the variable; empty = none.
func configPath(flags *pflag.FlagSet, environ []string) string {
	if path, err := flags.GetString(configFlag); err == nil && path != "" {
		return path
	}
	path := ""
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, envName(configFlag)+"="); ok {
			path = value
		}
	}
	return path
}

// loadFile takes the values of a YAML file and refuses its unknown keys; an empty path is no file.
func (l *loader) loadFile(path string) {
	if path == "" {
		return
	}
	if err := l.values.Load(file.Provider(path), settingsFile{yaml.Parser()}); err != nil {
		l.faults = append(l.faults, fmt.Errorf("configuration file %s: %w", path, err))
		return
	}
	known := settingNames()
	for _, key := range sortedKeys(l.values.Raw()) {
		if !slices.Contains(known, key) {
			l.faults = append(l.faults, fmt.Errorf("configuration file %s: %q: %w", path, key, errNoSetting))
		}
	}
}

// settingsFile parses one YAML document that maps settings to their values. It refuses anything behind
// it, whose settings would be passed over.
type settingsFile struct{ koanf.Parser }

// Unmarshal implements koanf.Parser.
func (f settingsFile) Unmarshal(raw []byte) (map[string]any, error) {
	values, err := f.Parser.Unmarshal(raw)
	switch {
	case err != nil && strings.Contains(err.Error(), "into map["):
		return nil, errNoPairs
	case err != nil:
		return nil, err
	}
	documents := yamlv3.NewDecoder(bytes.NewReader(raw))
	for range 2 {
		err = documents.Decode(new(yamlv3.Node))
	}
	if !errors.Is(err, io.EOF) {
		return nil, errDocuments
	}
	return values, nil
}

// loadEnviron takes the values of MUSIC_… variables and refuses those that belong to no setting.
func (l *loader) loadEnviron(environ []string) {
	names := map[string]string{envName(configFlag): ""}
	for _, name := range settingNames() {
		names[envName(name)] = name
	}
	l.load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(variable, value string) (string, any) {
			if serviceLink(variable, value) {
				return "", nil
			}
			name, ok := names[variable]
			if !ok {
				l.faults = append(l.faults, fmt.Errorf("environment variable %s: %w", variable, errNoSetting))
			}
			return name, value
		},
	}))
}

// loadFlags takes the values of the flags that were given, and of no others.
func (l *loader) loadFlags(flags *pflag.FlagSet) {
	l.load(posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		value, ok := f.Value.(*flagValue)
		if !ok {
			return "", nil
		}
		return f.Name, value.text
	}))
}

// load merges the settings of a provider over the previous ones.
func (l *loader) load(p koanf.Provider) {
	if err := l.values.Load(p, nil); err != nil {
		l.faults = append(l.faults, fmt.Errorf("read settings: %w", err))
	}
}

// decode writes the gathered values into the configuration. A key without a value (YAML's null)
// leaves the default.
func (l *loader) decode() {
	for _, s := range settings() {
		value := l.values.Get(s.name)
		if value == nil {
			continue
		}
		f := s.field(&l.config)
		given, err := plain(f, value)
		if err == nil {
			err = f.set(given)
		}
		if err != nil {
			l.refuse(s, given, err)
		}
	}
}

// readPassword replaces the name of a password's file by the password in it.
func (l *loader) readPassword() {
	login := &l.config.Cassandra
	if login.PasswordFile == "" {
		return
	}
	password, err := login.filePassword()
	if err != nil {
		l.refuseFile("password-file", login.PasswordFile, err)
		return
	}
	login.Password = password
}

// readPeerSecret reads the proxies' shared secret out of its file.
func (l *loader) readPeerSecret() {
	peers := &l.config.Peers
	if peers.SecretFile == "" {
		return
	}
	secret, err := readSecret(peers.SecretFile)
	if err != nil {
		l.refuseFile("peer-secret-file", peers.SecretFile, err)
		return
	}
	peers.Secret = secret
}

// refuseFile notes that the file of a setting cannot be used.
func (l *loader) refuseFile(name, path string, err error) {
	i := slices.IndexFunc(settings(), func(s setting) bool { return s.name == name })
	l.refuse(settings()[i], path, err)
}

// filePassword returns the password in PasswordFile. It is an error to give Password as well.
func (c Cassandra) filePassword() (Secret, error) {
	if c.Password != "" {
		return "", errBoth
	}
	return readSecret(c.PasswordFile)
}

// readSecret reads a file that holds a secret and perhaps an end of line behind it.
func readSecret(path string) (Secret, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	secret := strings.TrimRight(string(content), "\r\n")
	if secret == "" {
		return "", errEmptyFile
	}
	return Secret(secret), nil
}

// refuse notes that a setting cannot have the value it was given.
func (l *loader) refuse(s setting, given string, why error) {
	l.faulty[s.name] = true
	l.faults = append(l.faults, newFault(s.name, s.field(&l.config), given, why))
}

// plain turns a value of YAML, the environment or a flag into the text that field.set reads.
func plain(f field, value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case []any:
		return plainList(f, v)
	case map[string]any:
		return fmt.Sprint(v), errNoScalar
	default:
		if f.quoted {
			return fmt.Sprint(v), errUnquoted
		}
		return fmt.Sprint(v), nil
	}
}

// plainList is plain for a sequence of YAML.
func plainList(f field, values []any) (string, error) {
	if !f.list {
		return fmt.Sprint(values), errNoScalar
	}
	parts := make([]string, 0, len(values))
	for _, value := range values {
		part, ok := value.(string)
		if !ok {
			return fmt.Sprint(values), errUnquoted
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ","), nil
}

// envName returns the environment variable of a setting: MUSIC_LOCAL_DC for local-dc, and
// MUSIC_REPLICATION, not MUSIC_MUSIC_REPLICATION, for music-replication.
func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(name, "music-"), "-", "_"))
}

// serviceLink tells the variables that Kubernetes gives every pod beside a Service called music or
// music-something from settings. Its MUSIC_PORT=tcp://… would otherwise stop the proxy from
// starting.
func serviceLink(variable, value string) bool {
	_, service, found := strings.Cut(variable, "_SERVICE_")
	if found && (strings.HasPrefix(service, "HOST") || strings.HasPrefix(service, "PORT")) {
		return true
	}
	_, port, found := strings.Cut(variable, "_PORT_")
	if found && port != "" && port[0] >= '0' && port[0] <= '9' {
		return true
	}
	return strings.HasSuffix(variable, "_PORT") && strings.Contains(value, "://")
}

// settingNames returns the names of all settings, in the order of the table.
func settingNames() []string {
	var names []string
	for _, s := range settings() {
		names = append(names, s.name)
	}
	return names
}

// sortedKeys returns the keys of a map in an order that does not change.
func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

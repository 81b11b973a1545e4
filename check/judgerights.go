package check

import (
	"maps"
	"slices"
	"strings"
)

// judgeRights compares what the proxies' role may do with what docs/roles.md says that it needs.
func judgeRights(f *Facts) []Finding {
	j := judgement{topic: "rights"}
	if len(f.Roles) == 0 {
		return j.fine("no role of the proxies is seen: Cassandra asks for no login, or this login does not see system_views.clients and system_auth")
	}
	needs := map[string][]string{"data/music": {"SELECT", "MODIFY"}, "data/system_views/settings": {"SELECT"}}
	for _, t := range f.critical() {
		if t.Keyspace != musicKeyspace {
			needs["data/"+t.Keyspace] = []string{"SELECT", "MODIFY", "CREATE"}
		}
	}
	names := slices.Sorted(maps.Keys(f.Roles))
	for _, name := range names {
		f.judgeRole(&j, name, needs)
	}
	return j.fine("the proxies' role %s has what it needs", strings.Join(names, ", "))
}

// judgeRole compares one role with what it needs, by resource.
func (f *Facts) judgeRole(j *judgement, name string, needs map[string][]string) {
	role := f.Roles[name]
	for _, resource := range slices.Sorted(maps.Keys(needs)) {
		level := Fault
		if resource == "data/system_views/settings" {
			level = Warning // without it only warnings are missing
		}
		for _, permission := range needs[resource] {
			if !role.may(permission, resource) {
				j.add(level, "GRANT "+permission+" ON "+spoken(resource)+" TO "+name, "the proxies' role %s has no %s on %s", name, permission, spoken(resource))
			}
		}
	}
}

// may reports whether a role has a permission on a resource, or on one that contains it.
func (r Role) may(permission, resource string) bool {
	if r.Superuser {
		return true
	}
	for {
		if slices.Contains(r.Permissions[resource], permission) {
			return true
		}
		i := strings.LastIndex(resource, "/")
		if i < 0 {
			return false
		}
		resource = resource[:i]
	}
}

// spoken returns a resource as GRANT names it.
func spoken(resource string) string {
	parts := strings.Split(resource, "/")[1:]
	if len(parts) == 1 {
		return "KEYSPACE " + parts[0]
	}
	return strings.Join(parts, ".")
}

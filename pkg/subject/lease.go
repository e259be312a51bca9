package subject

import "strings"

// memberRole stands before the role in keys of members. No service has that name.
const memberRole = "member"

// Lease is the key of a lease in LeaseBucket.
func Lease(role, bs, unit string) string { return role + "." + bs + "." + Escape(unit) }

// LeasesOf covers every lease of a role in LeaseBucket.
func LeasesOf(role string) string { return role + ".>" }

// Member is the key in LeaseBucket under which one process of a role says that it is alive.
func Member(role, instance string) string {
	return memberRole + "." + role + "." + Escape(instance)
}

// MembersOf covers every member of a role in LeaseBucket.
func MembersOf(role string) string { return memberRole + "." + role + ".*" }

// ParseMember answers the instance of a member's key; ok is false for other keys.
func ParseMember(key string) (instance string, ok bool) {
	tokens := strings.Split(key, ".")
	if len(tokens) != 3 || tokens[0] != memberRole {
		return "", false
	}
	instance, err := Unescape(tokens[2])
	return instance, err == nil
}

// Snapshot names one snapshot of a windower's state in SnapshotBucket; unique tells
// apart those that two processes make at the same COMMIT.
func Snapshot(bs, job string, gen, pp int, unique string) string {
	return snapshotUnit(bs, job, gen, pp) + "/" + unique
}

// SnapshotPointer names the object in SnapshotBucket that lists the snapshots of one unit.
func SnapshotPointer(bs, job string, gen, pp int) string {
	return snapshotUnit(bs, job, gen, pp) + "/pointer"
}

func snapshotUnit(bs, job string, gen, pp int) string {
	return strings.TrimPrefix(WindowsStream(bs, job, gen, pp), "TM_")
}

# shellcheck shell=bash
# What a service account did, by the API server's audit log, beside what it may do.

# used NAMESPACE ACCOUNT: lines `VERB GROUP/RESOURCE ALLOWED|REFUSED`, each once.
audit_used() {
    cat "$LOGS"/audit*.log | jq -r --arg user "system:serviceaccount:$1:$2" '
        select(.user.username == $user and .objectRef.resource != null)
        | .verb + " " + (.objectRef.apiGroup // "") + "/" + .objectRef.resource
          + (if .objectRef.subresource then "/" + .objectRef.subresource else "" end)
          + (if .annotations["authorization.k8s.io/decision"] == "forbid" then " REFUSED" else " ALLOWED" end)' | sort -u
}

# granted LABELS: lines `VERB GROUP/RESOURCE` of the Roles and ClusterRoles with these labels that are bound to an account.
audit_granted() {
    kube get roles,clusterroles -A -l "$1" -o json | jq -r '
        .items[] | select(.metadata.labels | keys | any(startswith("rbac.authorization.k8s.io/aggregate")) | not)
        | .rules[]? | .verbs[] as $verb | (.apiGroups // [])[] as $group | (.resources // [])[] as $resource
        | $verb + " " + $group + "/" + $resource' | sort -u
}

# What is granted and was not used, and what was refused. Fails if there is either.
audit_rights() {
    local used granted unused refused
    used="$(audit_used "$1" "$2")"
    granted="$(audit_granted "$3")"
    unused="$(comm -23 <(echo "$granted") <(sed -n 's/ ALLOWED$//p' <<<"$used" | sort -u))"
    refused="$(sed -n 's/ REFUSED$//p' <<<"$used" | sort -u)"
    [[ -z $unused ]] || printf 'granted and not used:\n%s\n' "$unused"
    [[ -z $refused ]] || printf 'refused:\n%s\n' "$refused"
    [[ -z $unused$refused ]]
}

#!/usr/bin/env bash
# Collects from a simulated provider on this machine, with the commands that one
# would use on a real one. Run it twice: the second time starts at the speed that
# the first one found, and collects only what is new.
set -euo pipefail
cd "$(dirname "$0")/.."
headway=bin/headway
export HEADWAY_STATE=.headway/demo.db
export CHAT_TOKEN=demo-token
mkdir -p .headway

# Each later run finds 40 new conversations and 10 that changed.
runs=0
if [ -f "$HEADWAY_STATE" ]; then
  runs=$("$headway" runs --json --limit 0 | grep -c '"state": "drained"' || true)
fi
conversations=$((2010 + 40 * runs)) # never whole pages: a list that ends on a full one is warned of
updated=$((10 * runs))

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }

say "1. A provider with limits that it does not announce, and $conversations conversations:"
ready=$(mktemp -u "${TMPDIR:-/tmp}/headway-demo.XXXXXX")
echo "   $headway provider serve demo --conversations $conversations --updated $updated --token … --listen 127.0.0.1:0"
"$headway" provider serve demo --listen 127.0.0.1:0 --conversations "$conversations" --updated "$updated" \
  --token "$CHAT_TOKEN" --log .headway/demo-provider.log --ready-file "$ready" 2>.headway/demo-provider.err &
provider=$!
stop() { kill "$provider" 2>/dev/null || true; wait "$provider" 2>/dev/null || true; rm -f "$ready"; }
trap stop EXIT
for _ in $(seq 100); do
  [ -s "$ready" ] && break
  kill -0 "$provider" 2>/dev/null || { cat .headway/demo-provider.err >&2; exit 70; }
  sleep 0.1
done
CHAT_URL=$(cat "$ready")
export CHAT_URL

say "2. Collect it, as fast as it lets us:"
echo "   $headway collect examples/chat-archive.yaml"
code=0
"$headway" collect examples/chat-archive.yaml || code=$?

say "3. What is there now:"
echo "   $headway status"
"$headway" status
wc -l out/*.jsonl

if [ "$code" -ne 0 ]; then
  say "It ended with exit code $code; 75 means: run it again and it goes on."
  exit "$code"
fi
say "Next"
cat <<'END'
   Run "make run" again: it starts at the speed that it found, and collects only
   what is new. Stop it with Ctrl-C in the middle: it goes on where it was.
   For an API of your own:
     cp examples/github-issues.yaml my-api.yaml     # then edit it
     bin/headway check my-api.yaml --probe          # what would it do? one request
     bin/headway collect my-api.yaml
END

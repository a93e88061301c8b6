"""Reason codes: why something was decided, or why nothing was. Log, screens, messages and tests read these."""

# A rule's condition
PENDING = "pending"  # holds, not yet for long enough
FIRED = "fired"
AGAIN = "again"  # another event of an alert that fires already
CLEARED = "cleared"
REBOOTED = "rebooted"  # what an event said of an earlier boot no longer holds
RULE_CHANGED = "rule_changed"  # the configuration no longer has this rule as it was
FORGOTTEN = "forgotten"  # somebody took the card out and said so
HISTORY = "history"  # an event of an earlier boot: kept, not judged
OLD_EVENT = "old_event"  # more than a minute old when read: told, never acted on (S9)
CLOSED_BY_HAND = "closed_by_hand"
NO_READING = "no_reading"  # missing, stale, failed or implausible: neither fires nor clears (S3)

# Why no action is wanted now
NEGLIGIBLE = "negligible"  # who could be stopped uses too little of what is short
LOST_LIST = "lost_list"  # the card is lost: its last list of processes serves a hold, not a stop
NOT_UNITS = "not_units"  # what is over the limit is no unit or container that can be stopped
MPS_SERVER = "mps_server"  # it serves everybody's processes
RULED_OUT = "ruled_out"  # it was refused, or a person forbade it
NO_WORKLOAD = "no_workload"  # nobody on the GPU belongs to a configured workload
NOBODY_THERE = "nobody_there"  # no process uses the GPU
ATTRIBUTION_UNKNOWN = "attribution_unknown"  # the process list can't be trusted (S11)
NOT_CONFIRMED = "not_confirmed"  # waiting for the second reading of the process list (S11)
NOT_ALLOWED = "not_allowed"  # the workload's `allow` excludes the action
IN_FLIGHT = "in_flight"  # an action on this target is under way (S4)
SETTLING = "settling"  # the last action needs time to show (S4)
BUDGET_SPENT = "budget_spent"  # too many destructive actions lately (S4)
WAITING = "waiting"  # the next step's time has not come
SUSPECT = "suspect"  # the reading contradicts itself and no second witness agrees (S3)
COOLING = "cooling"  # it is hot, has no load any more, and gets cooler by itself
GRACE = "grace"  # the daemon or the host has only just started
NOT_WORSE = "not_worse"  # the step is for a value that gets worse, and it does not
SHARED = "shared"  # others work on the card too, so it is not throttled
VETOED = "vetoed"  # a person forbade it
INHIBITED = "inhibited"  # a graver trouble of the same card or host explains it

# What became of a change that can be put back
APPLIED = "applied"
DEEPER = "deeper"
LIGHTER = "lighter"
REAPPLIED = "reapplied"  # it had reverted by itself
UNDONE = "undone"
OVERTAKEN = "overtaken"  # somebody else changed it: theirs stays
UNSUPPORTED = "unsupported"
NO_ROOM = "no_room"  # it is as low as it goes already
NO_DROP_IN = "no_drop_in"  # the unit has no condition that a hold could work through
NO_PERMISSION = "no_permission"
CHANGE_FAILED = "change_failed"

# What became of an intent
PLANNED = "planned"
PRESERVED = "preserved"
WARNED = "warned"  # people were told and have a moment to forbid it
CHECKPOINTED = "checkpointed"  # the job was told to write its checkpoint, and gets time for it
SENT = "sent"
SENT_AGAIN = "sent_again"
KILLED = "killed"
GONE = "gone"
VERIFIED = "verified"
WOULD_HAVE = "would_have"
CONDITION_ENDED = "condition_ended"
NO_FRESH_SAMPLE = "no_fresh_sample"
ALREADY_GONE = "already_gone"
REPLACED = "replaced"  # the unit was started anew meanwhile
NO_BUNDLE = "no_bundle"  # the evidence could not be made durable (S1)
STOP_FAILED = "stop_failed"
NOT_GONE = "not_gone"  # still there after SIGKILL
CAME_BACK = "came_back"
OTHER_BOOT = "other_boot"
SYSTEMD_SILENT = "systemd_silent"
ENGINE_SILENT = "engine_silent"  # the same of a container's engine

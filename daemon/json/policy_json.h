// A workspace's policy in requests (create and update take the same fields) and in answers.
#pragma once

#include "daemon/json/json_fields.h"
#include "daemon/json/json_object.h"
#include "workspace/access/policy.h"

namespace moorage::daemon {

workspace::PolicyChange policy_change(JsonFields& fields);
// Of an effective policy: a value left to the settings shows the setting.
void put_policy(JsonObject& object, const state_db::WorkspacePolicy& policy);

}  // namespace moorage::daemon

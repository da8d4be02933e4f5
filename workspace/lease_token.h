// What a request says of leases. The token "ws_12.5.SECRET" (workspace, generation, 256 random bits
// as hex) proves one; only the holder gets it, in the answer to the acquire. The store keeps the
// SHA-256 of the secret, and a request's secret is hashed as soon as it was read. "ws_12.5" and "5"
// prove nothing; they are for being refused when that lease is over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "workspace/access.h"

namespace moorage::workspace {

std::string new_lease_secret();
std::string lease_secret_hash(std::string_view secret);
std::string lease_token(base::WorkspaceId workspace, int64_t generation, std::string_view secret);

// Of the header Moorage-Lease: up to 33 of these with commas between, one a workspace. The number
// alone is of the workspace that the request names.
std::vector<LeaseClaim> parse_lease_claims(std::string_view text);

}  // namespace moorage::workspace

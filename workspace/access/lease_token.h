// The lease claims of a request. The token "ws_12.5.SECRET" (workspace, generation, 256 random bits
// as hex) proves a lease; only the holder gets it, in the answer to the acquire. The store keeps
// the SHA-256 of the secret, and a request's secret is hashed once read. "ws_12.5" and "5"
// prove nothing; they only get a clear refusal when that lease is over.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "workspace/access/access.h"

namespace moorage::workspace {

std::string new_lease_secret();
std::string lease_secret_hash(std::string_view secret);
std::string lease_token(base::WorkspaceId workspace, int64_t generation, std::string_view secret);

// Parses the header Moorage-Lease: up to 33 claims separated by commas, one for each workspace. A
// number alone refers to the workspace that the request names.
std::vector<LeaseClaim> parse_lease_claims(std::string_view text);

}  // namespace moorage::workspace

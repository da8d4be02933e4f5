#include "workspace/access/lease_token.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/digest.h"
#include "base/error.h"

namespace moorage::workspace {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr size_t kMaxClaims = 33;

bool is_secret(std::string_view text) {
  return text.size() == 2 * kSecretBytes &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Removes and returns the part up to the next dot; also removes the dot.
std::string_view next_part(std::string_view& text) {
  const size_t dot = std::min(text.find('.'), text.size());
  const std::string_view part = text.substr(0, dot);
  text.remove_prefix(std::min(dot + 1, text.size()));
  return part;
}

std::optional<LeaseClaim> parse_claim(std::string_view text) {
  LeaseClaim claim;
  const bool named = text.find('.') != text.npos;
  if (named) {
    const auto workspace = base::WorkspaceId::parse(next_part(text));
    if (!workspace) return std::nullopt;
    claim.workspace = *workspace;
  }
  const bool secret = text.find('.') != text.npos;
  const std::string_view number = next_part(text);
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, claim.generation);
  if (parsed.ec != std::errc() || parsed.ptr != end || claim.generation <= 0) return std::nullopt;
  if (!secret) return claim;
  if (!is_secret(text)) return std::nullopt;
  claim.secret_hash = lease_secret_hash(text);
  return claim;
}

}  // namespace

std::string new_lease_secret() {
  std::array<char, kSecretBytes> bytes{};
  base::check(getrandom(bytes.data(), bytes.size(), 0), "get a random number");
  return base::to_hex({bytes.data(), bytes.size()});
}

std::string lease_secret_hash(std::string_view secret) { return base::sha256_hex(secret); }

std::string lease_token(base::WorkspaceId workspace, int64_t generation, std::string_view secret) {
  return workspace.str() + "." + std::to_string(generation) + "." + std::string(secret);
}

std::vector<LeaseClaim> parse_lease_claims(std::string_view text) {
  std::vector<LeaseClaim> claims;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    const auto claim = parse_claim(text.substr(0, comma));
    const bool twice = claim && std::any_of(claims.begin(), claims.end(), [&](const auto& other) {
                         return other.workspace == claim->workspace;
                       });
    if (!claim || twice || claims.size() == kMaxClaims) {
      // Keep the value out of the message: it may be a secret.
      throw Error(Code::invalid_argument, "Moorage-Lease is not a lease token",
                  "send the token from when you acquired the lease, ws_N.GENERATION.SECRET; for "
                  "several workspaces send one each, separated by commas");
    }
    claims.push_back(*claim);
    if (comma == text.size()) return claims;
    text.remove_prefix(comma + 1);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
}

}  // namespace moorage::workspace

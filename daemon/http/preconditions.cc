#include "daemon/http/preconditions.h"

#include <algorithm>

namespace moorage::daemon {

std::string entity_tag(const std::string& sha256_hex) { return "\"sha256-" + sha256_hex + "\""; }

bool Preconditions::Tags::include(const std::optional<std::string>& present) const {
  if (!present) return false;
  return any || std::find(list.begin(), list.end(), *present) != list.end();
}

Preconditions::Tags Preconditions::parse(const std::string& header, const char* name) {
  Tags tags;
  tags.given = !header.empty();
  tags.any = header == "*";
  if (!tags.given || tags.any) return tags;
  const auto refuse = [name] {
    throw Error(Code::invalid_argument,
                std::string(name) + " must be * or entity tags, \"sha256-<64 hex digits>\"",
                "GET the file with hash=1: its ETag is such a tag");
  };
  for (size_t at = 0; at <= header.size();) {
    const size_t end = std::min(header.find(',', at), header.size());
    std::string tag = header.substr(at, end - at);
    tag.erase(0, std::min(tag.find_first_not_of(" \t"), tag.size()));
    tag.erase(tag.find_last_not_of(" \t") + 1);
    constexpr size_t kTagBytes = 2 + 7 + 64;
    if (tag.size() != kTagBytes || !tag.starts_with("\"sha256-") || !tag.ends_with('"') ||
        tag.substr(8, 64).find_first_not_of("0123456789abcdef") != std::string::npos) {
      refuse();
    }
    tags.list.push_back(std::move(tag));
    at = end + 1;
  }
  return tags;
}

Preconditions::Preconditions(const Request& request)
    : match_(parse(request.if_match, "If-Match")),
      none_match_(parse(request.if_none_match, "If-None-Match")) {}

std::optional<Reply> Preconditions::unmet(const layers::TreeFiles& files,
                                          const std::string& path) const {
  if (!match_.given && !none_match_.given) return std::nullopt;
  const auto hash = files.content_hash(path);
  std::optional<std::string> present;
  if (hash) present = entity_tag(*hash);
  const bool holds = (!match_.given || match_.include(present)) && !none_match_.include(present);
  if (holds) return std::nullopt;
  const Error refused(Code::conflict,
                      path + " fails the condition: " +
                          (present ? "its tag is now " + *present : "it does not exist"),
                      "nothing was changed; read the file again and redo your change");
  Reply reply = error_reply(refused);
  reply.status = 412;
  if (present) reply.headers.emplace_back("ETag", *present);
  return reply;
}

}  // namespace moorage::daemon

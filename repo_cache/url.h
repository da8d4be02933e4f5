// Upstream URLs: checks a repository named by a person and normalizes it. Allowed: https://, ssh://
// and its short form user@host:path, git://, and file:///path or /path where the real path is below
// a configured root. Refuses everything beyond "fetch from that host": other transports and remote
// helpers (ext::, fd::), options in disguise (a leading dash in any part), control characters,
// credentials inside the URL. Tokens never reach argv, a log or the database. The key identifies a
// repository: it always contains host and path, so equal owner/name on two hosts, or "a_b/c" and
// "a/b_c", are different repositories.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::repo_cache {

enum class Scheme { https, ssh, git, file };
std::string_view scheme_name(Scheme scheme);

struct RepoUrl {
  Scheme scheme = Scheme::https;
  std::string fetch;  // for git; no credentials (an ssh user name does not count)
  std::string
      key;  // equal keys = the same repository: no ".git", no trailing slash, no default port
  std::string display;   // "owner/name": the last two parts of the path; printable ASCII only
  std::string host;      // lower case; empty for file
  bool missing = false;  // file: does not exist; only an older mirror can serve it
};

struct UrlPolicy {
  std::vector<std::string> file_roots;  // absolute; empty: no file URLs at all
};

// Throws invalid_argument (malformed, dangerous, credentials), unsupported (other schemes),
// permission_denied (file outside the roots). Never prints a password.
RepoUrl parse_url(std::string_view text, const UrlPolicy& policy);

}  // namespace moorage::repo_cache

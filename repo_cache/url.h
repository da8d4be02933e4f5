// Upstream URLs: what a person may name as a repository, checked and put into one form.
// Allowed: https://, ssh:// and its short form user@host:path, git://, and file:///path or /path
// where the real path lies below a configured root. Everything that reaches past "fetch from that
// host" is refused: other transports and remote helpers (ext::, fd::), options in disguise (a
// leading dash in any part), control characters, credentials inside the URL. Tokens never get near
// argv, a log or the database. The key decides what is the same repository: host and path are
// always both in it, so equal owner/name on two hosts, or "a_b/c" and "a/b_c", are different
// repositories.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::repo_cache {

enum class Scheme { https, ssh, git, file };
std::string_view scheme_name(Scheme scheme);

struct RepoUrl {
  Scheme scheme = Scheme::https;
  std::string fetch;  // what git is given; no credentials (an ssh user name is none)
  std::string
      key;  // equal keys = the same repository: no ".git", no trailing slash, no default port
  std::string display;   // "owner/name": the last two parts of the path; printable ASCII only
  std::string host;      // lower case; empty for file
  bool missing = false;  // file: nothing is there now, only a mirror made before can serve
};

struct UrlPolicy {
  std::vector<std::string> file_roots;  // absolute; empty: no file URLs at all
};

// Throws invalid_argument (malformed, dangerous, credentials), unsupported (a scheme that is not
// taken), permission_denied (file outside the roots). Never prints a password.
RepoUrl parse_url(std::string_view text, const UrlPolicy& policy);

}  // namespace moorage::repo_cache

#include "repo_cache/url.h"

#include <limits.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/parts.h"

namespace moorage::repo_cache {

namespace {

constexpr size_t kMaxUrlBytes = 2048;

constexpr const char* kUrlHint =
    "https://host/owner/name, ssh://user@host/path, user@host:path or git://host/path; a checkout "
    "of your own: moorage create --from DIR";

[[noreturn]] void refuse(const std::string& why, const std::string& hint = kUrlHint) {
  throw Error(Code::invalid_argument, "repository URL refused: " + why, hint);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string to_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) && !(c & 0x80); }

void check_characters(std::string_view text) {
  if (text.empty()) refuse("it is empty");
  if (text.size() > kMaxUrlBytes) refuse("it is longer than 2048 bytes");
  for (unsigned char c : text) {
    if (c < 0x20 || c == 0x7f) refuse("it contains a control character");
    if (c == '\\') refuse("it contains a backslash");
  }
  if (text.front() == '-') refuse("it begins with a dash");
  // Git too takes a slash as the end of a possible helper name.
  const size_t remote_helper = text.find("::");
  if (remote_helper != std::string_view::npos && text.find('/') > remote_helper) {
    refuse("remote helpers (\"name::address\") are not allowed");
  }
}

struct Authority {
  std::string user;
  std::string host;
  std::string port;
};

void check_host(const std::string& host) {
  if (host.empty()) refuse("the host is missing");
  if (host.front() == '[') {
    if (host.size() < 4 || host.back() != ']') refuse("the IPv6 address is malformed");
    const std::string_view inner = std::string_view(host).substr(1, host.size() - 2);
    if (inner.find_first_not_of("0123456789abcdef:.") != std::string_view::npos) {
      refuse("the IPv6 address is malformed");
    }
    return;
  }
  if (host.size() > 253) refuse("the host name is too long");
  if (host.front() == '-' || host.front() == '.') refuse("the host begins with a dash or a dot");
  if (host.find("..") != std::string::npos || host.back() == '.')
    refuse("the host has an empty part");
  for (char c : host) {
    if (!is_alnum(c) && c != '.' && c != '-' && c != '_') {
      refuse("the host has a character that is invalid in host names");
    }
  }
}

void check_user(const std::string& user) {
  if (user.empty()) refuse("the user name is empty");
  if (user.size() > 64) refuse("the user name is too long");
  if (user.front() == '-') refuse("the user name begins with a dash");
  for (char c : user) {
    if (!is_alnum(c) && c != '.' && c != '-' && c != '_' && c != '+') {
      refuse("the user name has a character that is not allowed");
    }
  }
}

std::string checked_port(std::string_view port) {
  if (port.empty() || port.size() > 5 ||
      !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    refuse("the port is not a number");
  }
  const int number = std::stoi(std::string(port));
  if (number < 1 || number > 65535) refuse("the port is out of range");
  return std::to_string(number);
}

Authority parse_authority(std::string_view text, Scheme scheme) {
  Authority result;
  if (const size_t at = text.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = text.substr(0, at);
    if (scheme != Scheme::ssh || user.find(':') != std::string_view::npos) {
      refuse("it contains a user name, password or token",
             "leave the credentials out of the URL: it would end up in logs and in the workspace");
    }
    result.user = std::string(user);
    check_user(result.user);
    text.remove_prefix(at + 1);
  }
  size_t port_search = 0;
  if (!text.empty() && text.front() == '[') {
    port_search = text.find(']');
    if (port_search == std::string_view::npos) refuse("the IPv6 address is malformed");
  }
  if (const size_t colon = text.find(':', port_search); colon != std::string_view::npos) {
    result.port = checked_port(text.substr(colon + 1));
    text = text.substr(0, colon);
  }
  result.host = to_lower(text);
  if (result.host.size() > 1 && result.host.back() == '.') result.host.pop_back();
  check_host(result.host);
  return result;
}

std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  for (const std::string_view part : base::split(path, '/')) {
    if (part == "." || part == "..") refuse("the path contains \".\" or \"..\"");
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, size_t first = 0) {
  std::string result;
  for (size_t i = first; i < parts.size(); ++i) result += (i > first ? "/" : "") + parts[i];
  return result;
}

void check_path(const std::vector<std::string>& parts, std::string_view raw) {
  if (parts.empty()) refuse("the path is missing", "a URL looks like https://host/owner/name");
  if (raw.find(' ') != std::string_view::npos) refuse("it contains a space", "write it as %20");
  if (raw.find_first_of("?#") != std::string_view::npos) refuse("it has a query or a fragment");
  const std::string folded = to_lower(raw);
  for (const char* escape : {"%00", "%0a", "%0d", "%2e%2e", "%2f", "%5c"}) {
    if (folded.find(escape) != std::string::npos)
      refuse("the path has an unnecessarily escaped character");
  }
  for (const auto& part : parts) {
    if (part.front() == '-') refuse("a part of the path begins with a dash");
  }
}

void strip_git_suffix(std::vector<std::string>& parts) {
  std::string& last = parts.back();
  if (last.size() > 4 && last.ends_with(".git")) last.resize(last.size() - 4);
}

std::string display_of(const std::vector<std::string>& parts) {
  std::string text = join(parts, parts.size() > 2 ? parts.size() - 2 : 0);
  for (char& c : text) {
    if (c < 0x21 || c > 0x7e) c = '?';
  }
  return text;
}

struct SchemeFacts {
  std::string_view name;
  std::string_view default_port;
};
constexpr std::array<SchemeFacts, 4> kSchemes{
    {{"https", "443"}, {"ssh", "22"}, {"git", "9418"}, {"file", ""}}};  // in the order of Scheme

RepoUrl assemble(Scheme scheme, Authority authority, std::string_view path, bool scp_form) {
  std::vector<std::string> parts = path_parts(path);
  check_path(parts, path);
  if (authority.port == kSchemes.at(static_cast<size_t>(scheme)).default_port)
    authority.port.clear();
  // "host:path" is relative to the home of the ssh user, "ssh://host/path" is not; "/~/" expresses
  // the former.
  const bool relative = scp_form && path.front() != '/';
  RepoUrl url;
  url.scheme = scheme;
  url.host = authority.host;
  const std::string user = authority.user.empty() ? "" : authority.user + "@";
  const std::string port = authority.port.empty() ? "" : ":" + authority.port;
  const std::string place = std::string(scheme_name(scheme)) + "://" + user + url.host + port;
  url.fetch = (relative ? user + url.host + ":" : place + "/") + join(parts);
  strip_git_suffix(parts);
  url.key = place + (relative && parts.front().front() != '~' ? "/~/" : "/") + join(parts);
  url.display = display_of(parts);
  return url;
}

bool below(const std::string& path, const std::string& root) {
  return path == root || root == "/" || path.starts_with(root + "/");
}

std::optional<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  if (!real) return std::nullopt;
  return std::string(real.get());
}

// The same answer for all paths outside of the roots, so it does not reveal whether one exists.
RepoUrl parse_file(const std::string& path, const UrlPolicy& policy) {
  const std::vector<std::string> given = path_parts(path);
  const std::optional<std::string> real = real_path(path);
  const bool allowed =
      std::any_of(policy.file_roots.begin(), policy.file_roots.end(), [&](const auto& root) {
        const std::optional<std::string> real_root = real_path(root);
        return real_root && below(real.value_or("/" + join(given)), *real_root);
      });
  if (!allowed) {
    throw Error(
        Code::permission_denied,
        "repository URL refused: this path is not below a directory that the daemon may read",
        "for your own checkout: moorage create --from DIR; or ask the administrator to set "
        "repo.file_roots");
  }
  std::vector<std::string> parts = real ? path_parts(*real) : given;
  if (parts.empty()) refuse("the path is missing");
  RepoUrl url;
  url.scheme = Scheme::file;
  url.missing = !real;
  url.fetch = "/" + join(parts);  // as a path: git would decode % in a file URL
  if (parts.back() == ".git" && parts.size() > 1) parts.pop_back();
  url.key = "file:///" + join(parts);  // ".git" stays: x and x.git may both exist
  strip_git_suffix(parts);
  url.display = display_of(parts);
  return url;
}

RepoUrl parse_scp_form(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view head = text.substr(0, colon);
  const std::string_view path = text.substr(colon + 1);
  if (path.find('@') != std::string_view::npos && head.find('@') == std::string_view::npos) {
    refuse("it contains a user name, password or token", "leave the credentials out of the URL");
  }
  if (path.empty()) refuse("the path is missing");
  return assemble(Scheme::ssh, parse_authority(head, Scheme::ssh), path, true);
}

}  // namespace

std::string_view scheme_name(Scheme scheme) {
  return kSchemes.at(static_cast<size_t>(scheme)).name;
}

RepoUrl parse_url(std::string_view text, const UrlPolicy& policy) {
  check_characters(text);
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) {
    if (text.front() == '/') return parse_file(std::string(text), policy);
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || text.find('/') < colon) {
      refuse("it has no host", "a URL looks like https://host/owner/name");
    }
    return parse_scp_form(text);
  }
  const std::string scheme = to_lower(text.substr(0, scheme_end));
  std::string_view rest = text.substr(scheme_end + 3);
  if (scheme == "file") {
    if (rest.empty() || rest.front() != '/') refuse("a file URL has three slashes: file:///path");
    if (rest.find('%') != std::string_view::npos) {
      refuse("a file URL cannot contain %", "give the plain path instead");
    }
    return parse_file(std::string(rest), policy);
  }
  Scheme kind = Scheme::https;
  if (scheme == "ssh" || scheme == "git+ssh" || scheme == "ssh+git") {
    kind = Scheme::ssh;
  } else if (scheme == "git") {
    kind = Scheme::git;
  } else if (scheme != "https") {
    throw Error(Code::unsupported, "repository URL refused: only https, ssh and git are allowed",
                scheme == "http" ? "use https://: plain http can be changed on the way" : kUrlHint);
  }
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos) refuse("the path is missing");
  return assemble(kind, parse_authority(rest.substr(0, slash), kind), rest.substr(slash), false);
}

}  // namespace moorage::repo_cache

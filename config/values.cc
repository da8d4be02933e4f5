#include "config/values.h"

#include <grp.h>
#include <pwd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/git_identity.h"
#include "base/net/ip_address.h"
#include "base/size_text.h"

namespace moorage::config {

namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr std::array kByteUnits{Unit{"TiB", 1ULL << 40}, Unit{"GiB", 1ULL << 30},
                                Unit{"MiB", 1ULL << 20}, Unit{"KiB", 1ULL << 10}};
constexpr std::array kTimeUnits{Unit{"d", 86'400}, Unit{"h", 3600}, Unit{"m", 60}, Unit{"s", 1}};

[[noreturn]] void refuse(std::string_view text, const std::string& wanted) {
  throw Error(Code::invalid_argument, "\"" + std::string(text) + "\" is not " + wanted);
}

void check_range(std::string_view text, uint64_t value, const Range& range,
                 std::string (*print)(uint64_t)) {
  if (value >= range.least && value <= range.most) return;
  if (range.or_zero && value == 0) return;
  refuse(text, std::string(range.or_zero ? "0 or " : "") + "from " + print(range.least) + " to " +
                   print(range.most));
}

std::string print_integer(uint64_t value) { return std::to_string(value); }

// Parses an integer, then an optional unit. False for anything else and on overflow.
template <size_t N>
bool read_number(std::string_view text, const std::array<Unit, N>& units, uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  if (rest.empty()) return true;
  for (const Unit& unit : units) {
    if (rest == unit.name) return !__builtin_mul_overflow(value, unit.factor, &value);
  }
  return false;
}

constexpr size_t kMaxEntryBytes = 1 << 20;  // for a group with very many members
constexpr Range kIds{0, UINT32_MAX - 1};    // the kernel uses the last one for "no id"

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Grows the buffer until the entry fits. Empty: no such name.
template <typename Entry, typename Find>
std::optional<Entry> look_up(const std::string& name, const char* database, const Find& find) {
  std::vector<char> room(4096);
  for (;;) {
    Entry entry{};
    Entry* found = nullptr;
    const int error = find(name.c_str(), &entry, room.data(), room.size(), &found);
    if (found != nullptr) return entry;
    // Error codes that getpwnam(3) lists as "not found"; others mean that the database failed.
    if (error == 0 || error == ENOENT || error == ESRCH || error == EPERM) return std::nullopt;
    if (error != ERANGE || room.size() >= kMaxEntryBytes)
      base::throw_errno("read the " + std::string(database) + " database of this host", error);
    room.resize(room.size() * 4);
  }
}

[[noreturn]] void refuse_unknown(const char* kind, const std::string& name, const char* database) {
  throw Error(Code::invalid_argument,
              "there is no " + std::string(kind) + " \"" + name + "\" on this host",
              "`getent " + std::string(database) + "` lists them; a number needs no entry.");
}

}  // namespace

uint64_t parse_integer(std::string_view text, const Range& range) {
  uint64_t value = 0;
  if (!read_number(text, std::array<Unit, 0>{}, value)) refuse(text, "an integer");
  check_range(text, value, range, print_integer);
  return value;
}

double parse_real(std::string_view text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(text, "a number");
  if (!(value >= least && value <= most))
    refuse(text, "from " + base::number_text(least) + " to " + base::number_text(most));
  return value;
}

bool parse_flag(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  refuse(text, "true or false");
}

uint64_t parse_bytes(std::string_view text, const Range& range) {
  const auto value = base::parse_size(text);
  if (!value) refuse(text, "a size, like 512M, 8G or 8GiB");
  check_range(text, *value, range, print_bytes);
  return *value;
}

int64_t parse_seconds(std::string_view text, const Range& range) {
  uint64_t value = 0;
  if (!read_number(text, kTimeUnits, value)) {
    refuse(text, "a time: a number of seconds, or one with s, m, h or d");
  }
  check_range(text, value, range, print_integer);
  return static_cast<int64_t>(value);
}

std::string parse_path(std::string_view text) {
  if (text.empty() || text.front() != '/') refuse(text, "an absolute path");
  if (text.find('\0') != std::string_view::npos) refuse(text, "a path");
  const std::string closed = std::string(text) + "/";
  if (closed.find("/../") != std::string::npos || closed.find("/./") != std::string::npos) {
    refuse(text, "a path without . and ..");
  }
  while (text.size() > 1 && text.back() == '/') text.remove_suffix(1);
  return std::string(text);
}

std::string parse_host(std::string_view text) {
  if (text.empty() || text.find_first_not_of(kNameCharacters) != std::string_view::npos)
    refuse(text, "a host such as git.example.com, or .example.com for all below it");
  return std::string(text);
}

std::string parse_resolver(std::string_view text) {
  std::string_view address = text;
  if (const size_t close = text.find(']'); text.starts_with('[') && close != std::string_view::npos)
    address = text.substr(1, close - 1);
  if (base::parse_address(address)) return std::string(text);
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !base::parse_address(text.substr(0, colon)))
    refuse(text, "the address of a DNS server: 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53");
  parse_integer(text.substr(colon + 1), {1, 65535});
  return std::string(text);
}

std::string parse_address_range(std::string_view text) {
  base::parse_range(text);
  return std::string(text);
}

std::string parse_http_proxy(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (text.empty()) return {};
  const size_t colon = text.rfind(':');
  if (!text.starts_with(kScheme) || colon < kScheme.size() || text.ends_with('/'))
    refuse(text, "a proxy: http://host:port");
  parse_host(text.substr(kScheme.size(), colon - kScheme.size()));
  parse_integer(text.substr(colon + 1), {1, 65535});
  return std::string(text);
}

std::string parse_proxy(std::string_view text) {
  if (text.empty()) return {};
  if (text.find('@') != std::string_view::npos) {  // not shown: it may be a password
    throw Error(Code::invalid_argument, "a proxy with a user name or password is not supported");
  }
  constexpr std::array<std::string_view, 4> kSchemes{"http://", "https://", "socks5://",
                                                     "socks5h://"};
  for (const std::string_view scheme : kSchemes) {
    const bool starts = text.starts_with(scheme) && text.size() > scheme.size();
    if (starts && text.find_first_of(" \t\r\n\"\\") == std::string_view::npos) {
      return std::string(text);
    }
  }
  refuse(text, "a proxy: http://host:port, or https://, socks5:// or socks5h://");
}

std::string parse_identity(std::string_view text) {
  if (text.empty() || base::is_git_identity(text)) return std::string(text);
  refuse(text, "a name or address for commits: no control characters, < or >");
}

std::string parse_word(const std::string& text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  if (!text.empty() && text.find_first_not_of(kAllowed) == std::string::npos) return text;
  throw Error(Code::invalid_argument, "\"" + text + "\" is not an allowed name");
}

std::string parse_runtime(std::string_view text) {
  if (text.find_first_not_of(kNameCharacters) == std::string_view::npos) return std::string(text);
  refuse(text, "the name of a runtime, like crun");
}

std::string print_bytes(uint64_t bytes) {
  for (const Unit& unit : kByteUnits) {
    if (bytes != 0 && bytes % unit.factor == 0)
      return std::to_string(bytes / unit.factor) + std::string(unit.name);
  }
  return std::to_string(bytes);
}

uint32_t user_id(const std::string& name) {
  if (is_number(name)) return static_cast<uint32_t>(parse_integer(name, kIds));
  const auto entry = look_up<passwd>(name, "user", getpwnam_r);
  if (!entry) refuse_unknown("user", name, "passwd");
  return entry->pw_uid;
}

uint32_t group_id(const std::string& name) {
  if (is_number(name)) return static_cast<uint32_t>(parse_integer(name, kIds));
  const auto entry = look_up<group>(name, "group", getgrnam_r);
  if (!entry) refuse_unknown("group", name, "group");
  return entry->gr_gid;
}

}  // namespace moorage::config

#include "egress/broker/git_request.h"

#include <algorithm>
#include <charconv>

#include "base/net/url_path.h"

namespace moorage::egress {
namespace {

constexpr std::string_view kRefs = "/info/refs";
constexpr std::string_view kFetch = "git-upload-pack";
constexpr std::string_view kPush = "git-receive-pack";
constexpr std::string_view kFetchType = "application/x-git-upload-pack-request";
constexpr std::string_view kPushType = "application/x-git-receive-pack-request";
constexpr std::string_view kWebDav[] = {"PROPFIND", "PROPPATCH", "MKCOL",  "COPY",
                                        "MOVE",     "LOCK",      "UNLOCK", "ACL"};
constexpr std::string_view kUploads[] = {"PUT", "PATCH", "DELETE"};
constexpr size_t kMaxReason = 500;  // bytes
constexpr int kMostEscapes = 5;
constexpr std::string_view kFlush = "0000";
constexpr size_t kLength = 4;            // hex digits before each line
constexpr size_t kMaxSideband = 65'515;  // bytes of one line of a sideband

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// What some server may read in it: without escapes, however often they are escaped, blanks and
// control characters, in lower case. Empty: too often.
std::optional<std::string> deciphered(std::string_view text) {
  std::string now(text);
  for (int round = 0; round < kMostEscapes; ++round) {
    std::string next;
    for (size_t i = 0; i < now.size(); ++i) {
      unsigned value = 0;
      const char* digits = now.data() + i + 1;
      const bool escape = now[i] == '%' && i + 2 < now.size() &&
                          std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
      const char c = escape ? static_cast<char>(value) : now[i];
      if (escape) i += 2;
      if (static_cast<unsigned char>(c) > ' ') next += lower(c);
    }
    if (next == now) return now;
    now = std::move(next);
  }
  return std::nullopt;
}

std::string value_of(const RequestHead& head, std::string_view name) {
  for (const Field& field : head.fields) {
    if (same_name(field.name, name)) return field.value;
  }
  return {};
}

// Parts of a repository's own files, which WebDAV and plain uploads could write.
bool is_in_repository(std::string_view path) {
  if (path.find("/info/lfs/") != path.npos) return false;
  for (const std::string_view part : {".git/", "/refs/heads/", "/refs/tags/", "/objects/"}) {
    if (path.find(part) != path.npos) return true;
  }
  return path.ends_with("/packed-refs") || path.ends_with("/head") || path.ends_with(".git");
}

std::string trouble_of_push(const RequestHead& head, const GitRequest& push) {
  const std::string& path = push.repository;
  if (!base::is_plain_path(path) || path.find('%') != path.npos || path.ends_with('/'))
    return "the path of the repository can be read in more than one way";
  if (!push.transfers) return {};
  if (head.method != "POST" || head.target.find('?') != std::string::npos ||
      !same_name(value_of(head, "Content-Type"), kPushType)) {
    return "this is not how git pushes";
  }
  if (!value_of(head, "Content-Encoding").empty())
    return "a push whose body is compressed cannot be judged";
  return {};
}

std::string one_line(std::string text) {
  text.resize(std::min(text.size(), kMaxReason));
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string packet(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const size_t size = text.size() + kLength;
  std::string line;
  for (int shift = 12; shift >= 0; shift -= 4) line += kDigits[size >> shift & 15];
  return line.append(text);
}

}  // namespace

std::optional<GitRequest> git_request(std::string_view method, std::string_view target) {
  const size_t question = target.find('?');
  std::string_view path = target.substr(0, question);
  const std::string_view query = question == target.npos ? "" : target.substr(question + 1);
  GitRequest request;
  if (path.ends_with(kRefs) && (method == "GET" || method == "HEAD")) {
    path.remove_suffix(kRefs.size());
    if (query == "service=git-receive-pack")
      request.push = true;
    else if (query != "service=git-upload-pack")
      return std::nullopt;
  } else {
    for (const std::string_view service : {kFetch, kPush}) {
      if (!path.ends_with(service) || path.size() <= service.size() + 1) continue;
      path.remove_suffix(service.size() + 1);
      request.push = service == kPush;
      request.transfers = true;
      break;
    }
    if (!request.transfers) return std::nullopt;
  }
  request.repository = std::string(path);
  return request;
}

bool is_fetch_body(const RequestHead& head) {
  return head.method == "POST" && same_name(value_of(head, "Content-Type"), kFetchType);
}

std::string hidden_push(const RequestHead& head) {
  const auto git = git_request(head.method, head.target);
  if (git && git->push) return trouble_of_push(head, *git);
  if (std::ranges::find(kWebDav, head.method) != std::end(kWebDav))
    return head.method + " is refused: it could push without git's commands";
  if (head.method == "GET" || head.method == "HEAD" || head.method == "OPTIONS") return {};
  const auto target = deciphered(head.target);
  if (!target || target->find("receive-pack") != std::string::npos)
    return "this is not how git pushes";
  const bool uploads = std::ranges::find(kUploads, head.method) != std::end(kUploads);
  if (uploads && is_in_repository(target->substr(0, target->find('?'))))
    return head.method + " is refused: a repository is changed by pushes of git alone";
  return {};
}

PushHead::State PushHead::fail(std::string why) {
  trouble_ = std::move(why);
  return State::invalid;
}

bool PushHead::has(std::string_view capability) const {
  std::string_view rest = capabilities_;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word == capability) return true;
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return false;
}

bool PushHead::take(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.starts_with("shallow ")) return base::is_object_id(line.substr(8));
  if (commands_.empty()) {
    const size_t end = line.find('\0');
    if (end == line.npos) return false;
    capabilities_ = std::string(line.substr(end + 1));
    line = line.substr(0, end);
  }
  const size_t first = line.find(' ');
  const size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
  if (second == line.npos) return false;
  PushCommand command{std::string(line.substr(second + 1)), std::string(line.substr(0, first)),
                      std::string(line.substr(first + 1, second - first - 1))};
  if (!base::is_object_id(command.old_id) || !base::is_object_id(command.new_id) ||
      command.old_id.size() != command.new_id.size() || !base::is_ref(command.ref)) {
    return false;
  }
  const bool twice = std::ranges::any_of(
      commands_, [&command](const PushCommand& other) { return other.ref == command.ref; });
  if (twice || commands_.size() >= kMaxCommands) return false;
  commands_.push_back(std::move(command));
  return true;
}

PushHead::State PushHead::read(std::string_view body) {
  commands_.clear();
  capabilities_.clear();
  std::string_view rest = body;
  while (rest.size() >= kLength) {
    size_t size = 0;
    const std::string_view digits = rest.substr(0, kLength);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + kLength, size, 16);
    if (error != std::errc() || end != digits.data() + kLength || !is_hex(digits) ||
        (size > 0 && size <= kLength)) {
      return fail("the push does not begin with commands");
    }
    if (size == 0) {
      if (has("push-options")) return fail("push options are not carried");
      // A probe has nothing behind it, which a server could read as commands all the same.
      if (commands_.empty() && body != kFlush) return fail("the push does not begin with commands");
      return State::complete;
    }
    if (rest.size() < size) break;
    if (!take(rest.substr(kLength, size - kLength)))
      return fail("a command of the push cannot be judged; signed pushes are not carried");
    rest.remove_prefix(size);
  }
  if (body.size() >= kMaxBytes) return fail("the push has too many commands");
  return State::incomplete;
}

bool PushHead::can_report() const { return has("report-status") || has("report-status-v2"); }

std::string PushHead::refusal(const std::vector<std::string>& reasons) const {
  std::string report = packet("unpack ok\n");
  for (size_t i = 0; i < commands_.size() && i < reasons.size(); ++i)
    report += packet("ng " + commands_[i].ref + " " + one_line(reasons[i]) + "\n");
  report += kFlush;
  if (!has("side-band-64k")) return report;
  std::string answer;
  for (size_t at = 0; at < report.size(); at += kMaxSideband)
    answer += packet("\x01" + report.substr(at, kMaxSideband));
  return answer.append(kFlush);
}

}  // namespace moorage::egress

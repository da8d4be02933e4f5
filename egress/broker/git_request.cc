#include "egress/broker/git_request.h"

#include <algorithm>
#include <charconv>

namespace moorage::egress {
namespace {

constexpr std::string_view kRefs = "/info/refs";
constexpr std::string_view kFetch = "git-upload-pack";
constexpr std::string_view kPush = "git-receive-pack";
constexpr std::string_view kRefPrefix = "refs/";
constexpr size_t kLength = 4;            // hex digits before each line
constexpr size_t kMaxSideband = 65'515;  // bytes of one line of a sideband

bool is_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && is_hex(text);
}

// Stricter than git-check-ref-format(1): nothing that a server could read in another way.
bool is_ref(std::string_view ref) {
  if (!ref.starts_with(kRefPrefix) || ref.ends_with('/') || ref.ends_with('.') ||
      ref.ends_with(".lock") || ref.size() > 1024) {
    return false;
  }
  for (const char c : ref) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 127 ||
        std::string_view("~^:?*[\\").find(c) != std::string_view::npos) {
      return false;
    }
  }
  for (const std::string_view wrong : {"..", "//", "/.", "@{", ".lock/"}) {
    if (ref.find(wrong) != ref.npos) return false;
  }
  return true;
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
  if (path.ends_with(".git")) path.remove_suffix(4);
  request.repository = std::string(path);
  return request;
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
  if (line.starts_with("shallow ")) return is_id(line.substr(8));
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
  if (!is_id(command.old_id) || !is_id(command.new_id) || !is_ref(command.ref)) return false;
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
      return State::complete;
    }
    if (rest.size() < size) break;
    if (!take(rest.substr(kLength, size - kLength)))
      return fail("a command of the push cannot be judged; signed pushes are not carried");
    rest.remove_prefix(size);
  }
  if (body.size() > kMaxBytes) return fail("the push has too many commands");
  return State::incomplete;
}

std::string PushHead::refusal(const std::vector<std::string>& reasons) const {
  std::string report = packet("unpack ok\n");
  for (size_t i = 0; i < commands_.size() && i < reasons.size(); ++i)
    report += packet("ng " + commands_[i].ref + " " + reasons[i] + "\n");
  report += "0000";
  if (!has("side-band-64k")) return report;
  std::string answer;
  for (size_t at = 0; at < report.size(); at += kMaxSideband)
    answer += packet("\x01" + report.substr(at, kMaxSideband));
  return answer + "0000";
}

}  // namespace moorage::egress

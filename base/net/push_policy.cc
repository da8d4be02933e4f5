#include "base/net/push_policy.h"

#include <algorithm>
#include <boost/describe.hpp>
#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::base {

BOOST_DESCRIBE_STRUCT(PushCommand, (), (ref, old_id, new_id))
BOOST_DESCRIBE_STRUCT(PushQuestion, (), (id, repository, commands))
BOOST_DESCRIBE_STRUCT(PushAnswer, (), (id, reasons))

namespace {

constexpr std::string_view kRefPrefix = "refs/";
constexpr size_t kMaxRef = 1024;

bool matches(std::string_view pattern, std::string_view ref) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return ref == pattern;
  const std::string_view before = pattern.substr(0, star);
  const std::string_view after = pattern.substr(star + 1);
  return ref.size() > before.size() + after.size() && ref.starts_with(before) &&
         ref.ends_with(after);
}

template <typename T>
T read(std::string_view text, const char* what) {
  try {
    return boost::json::value_to<T>(boost::json::parse(text));
  } catch (const std::exception& error) {
    throw Error(Code::invalid_argument, std::string(what) + ": " + error.what());
  }
}

}  // namespace

bool is_ref(std::string_view text) {
  if (!text.starts_with(kRefPrefix) || text.size() > kMaxRef) return false;
  for (const char c : text) {
    if (c <= ' ' || c >= 127 || std::string_view("~^:?*[\\").find(c) != std::string_view::npos)
      return false;
  }
  for (const std::string_view wrong : {"..", "//", "/.", "@{", ".lock/"}) {
    if (text.find(wrong) != text.npos) return false;
  }
  return !text.ends_with('/') && !text.ends_with('.') && !text.ends_with(".lock");
}

bool is_object_id(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_zero_id(std::string_view id) {
  return std::ranges::all_of(id, [](char c) { return c == '0'; });
}

void check_ref_pattern(std::string_view pattern) {
  std::string example(pattern);
  if (const size_t star = example.find('*'); star != example.npos) example[star] = 'x';
  if (is_ref(example) && example.find('/', kRefPrefix.size()) != example.npos) return;
  throw Error(Code::invalid_argument,
              "not a pattern of refs: '" + std::string(pattern.substr(0, kMaxRef)) + "'",
              "write it in full, with at most one *, like refs/heads/agent/*");
}

bool may_push(const PushPolicy& policy, std::string_view ref) {
  if (!is_ref(ref)) return false;
  if (policy.refs.empty()) return matches(kBranches, ref);
  return std::ranges::any_of(policy.refs,
                             [ref](const std::string& pattern) { return matches(pattern, ref); });
}

std::string patterns_text(const PushPolicy& policy) {
  if (policy.refs.empty()) return kBranches;
  std::string text;
  for (const std::string& pattern : policy.refs) text += (text.empty() ? "" : ", ") + pattern;
  return text;
}

std::string to_json(const PushQuestion& question) {
  return boost::json::serialize(boost::json::value_from(question));
}
std::string to_json(const PushAnswer& answer) {
  return boost::json::serialize(boost::json::value_from(answer));
}
PushQuestion read_push_question(std::string_view json) {
  return read<PushQuestion>(json, "not a push");
}
PushAnswer read_push_answer(std::string_view json) {
  return read<PushAnswer>(json, "not an answer about a push");
}

}  // namespace moorage::base

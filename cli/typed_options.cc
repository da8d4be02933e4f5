#include <algorithm>

#include "cli/options.h"

namespace moorage::cli {
namespace {

constexpr struct {
  std::string_view field;
  std::string_view option;
} kOptions[] = {{"ttl_s", "--ttl"},
                {"holder", "--holder"},
                {"timeout_ms", "--timeout"},
                {"limits.memory_bytes", "--memory"},
                {"limits.cpus", "--cpus"},
                {"limits.pids", "--pids"},
                {"limits.disk_bytes", "--disk"},
                {"limits.disk_files", "--disk-files"},
                {"idle_stop_s", "--idle-stop"},
                {"max_lifetime_s", "--max-lifetime"},
                {"pre_stop", "--pre-stop"},
                {"pre_stop_deadline_s", "--pre-stop-deadline"},
                {"max_exec_s", "--max-exec"},
                {"max_execs", "--max-execs"},
                {"max_exec_total_s", "--max-exec-total"},
                {"snapshot_every_s", "--snapshot"},
                {"caches", "--cache"},
                {"labels", "--label"},
                {"external_id", "--external-id"},
                {"backend", "--backend"},
                {"image", "--image"},
                {"runtime", "--runtime"},
                {"branch", "--branch"},
                {"name", "--name"},
                {"ref", "--ref"},
                {"cwd", "--cwd"},
                {"user", "--user"},
                {"count", "--count"},
                {"parallel", "--parallel"},
                {"base", "--base"}};

bool is_typed(const std::vector<std::string>& words, std::string_view option) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return word.starts_with(option) && (word.size() == option.size() || word[option.size()] == '=');
  });
}

bool is_part_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

// Replaces `from` where it stands as a whole word, or after a dot.
void replace(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;) {
    const size_t end = at + from.size();
    const bool whole = (at == 0 || !is_part_of_name(text[at - 1])) &&
                       (end == text.size() || !is_part_of_name(text[end]) ||
                        (text[end] == '.' && end + 1 == text.size()));
    if (whole) text.replace(at, from.size(), to);
    at += whole ? to.size() : 1;
  }
}

}  // namespace

Error with_typed_options(const Error& error, const std::vector<std::string>& words) {
  if (error.code() != Code::invalid_argument) return error;
  std::string message = error.message();
  for (const auto& [field, option] : kOptions) {
    if (!is_typed(words, option)) continue;
    const std::string quoted = "'" + std::string(field) + "'";
    replace(message, "the field " + quoted, option);
    // A plain word such as "name" is a field only in quotes, and as the subject.
    if (message.starts_with(std::string(field) + " must be "))
      message.replace(0, field.size(), option);
    if (field.find_first_of("_.") != std::string_view::npos) {
      replace(message, quoted, option);
      replace(message, field, option);
    }
  }
  return Error(error.code(), message, error.hint());
}

}  // namespace moorage::cli

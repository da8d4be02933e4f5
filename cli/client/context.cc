#include "cli/client/context.h"

#include "base/ids.h"
#include "base/os/fd.h"

namespace moorage::cli {

void Context::print(std::string_view text) const { base::write_all(STDOUT_FILENO, text); }

void Context::print_label(std::string_view label, std::string_view text) const {
  print(label_line(label, text));
}

void Context::print_table(const Table& table) const {
  Table::Style style;
  if (terminal.out) style = {static_cast<size_t>(terminal.columns), terminal.colours};
  print(table.render(style));
}

void Context::print_json(std::string_view text) const {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  print(std::string(text) + "\n");
}

void Context::note(std::string_view text) const {
  try {
    base::write_all(STDERR_FILENO, "moorage: " + printable(text) + "\n");
  } catch (const Error&) {
    // Nobody reads standard error; the exit code remains.
  }
}

std::optional<Json> Context::parse_or_print(std::string_view answer) const {
  if (!json) return Json::parse(answer);
  print_json(answer);
  return std::nullopt;
}

Api& Context::api() {
  if (!api_) {
    api_ = std::make_unique<Api>(socket);
    api_->on_warning = [this](const std::string& warning) { note(warning); };
  }
  return *api_;
}

std::string Context::workspace_path(std::string_view workspace, std::string_view rest) const {
  if (workspace.empty()) {
    throw Error(Code::invalid_argument, "the workspace name is empty",
                "moorage ls lists the names");
  }
  return "/v1/workspaces/" + percent_encode(workspace) + std::string(rest);
}

std::string Context::exec_path(std::string_view exec, std::string_view rest) const {
  if (!is_exec_id(exec)) {
    throw Error(Code::invalid_argument,
                "'" + std::string(exec) + "' is not a command id (expected ex_N)",
                "running commands: moorage ps; all of a workspace: moorage ps NAME");
  }
  return "/v1/execs/" + percent_encode(exec) + std::string(rest);
}

bool is_exec_id(std::string_view text) { return base::ExecId::parse(text).has_value(); }

}  // namespace moorage::cli

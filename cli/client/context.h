// The terminal, the daemon and the global options, for every command. Commands print through it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/client/api.h"
#include "cli/client/json.h"
#include "cli/output/table.h"
#include "cli/output/terminal.h"
#include "cli/output/text.h"

namespace moorage::cli {

class Context {
 public:
  void print(std::string_view text) const;                                // standard output, raw
  void print_label(std::string_view label, std::string_view text) const;  // a label_line
  void print_table(const Table& table) const;
  // Standard output: JSON as the API sent it, one line.
  void print_json(std::string_view text) const;
  void print_json(const JsonObject& object) const { print_json(object.str()); }
  // Standard error, "moorage: TEXT"; escaped. Never fails.
  void note(std::string_view text) const;
  // With --json prints the answer and returns nothing: the command is done. Otherwise parses it.
  std::optional<Json> parse_or_print(std::string_view answer) const;

  Api& api();
  // "/v1/workspaces/NAME" + rest; checks the form of the name; the daemon checks that it exists.
  std::string workspace_path(std::string_view workspace, std::string_view rest = {}) const;
  std::string exec_path(std::string_view exec, std::string_view rest = {}) const;

  const Terminal terminal = Terminal::detect();
  std::string socket;
  std::string lease;  // from --lease; empty: MOORAGE_LEASE, if set (kept_leases.h)
  bool json = false;
  std::vector<std::string> command;  // the words after --

 private:
  std::unique_ptr<Api> api_;
};

bool is_exec_id(std::string_view text);  // "ex_12"

}  // namespace moorage::cli

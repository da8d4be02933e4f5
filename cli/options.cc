#include "cli/options.h"

#include <CLI/App.hpp>
#include <algorithm>

namespace moorage::cli {
namespace {

// An empty value is a mistake, such as an unset variable. Treating it as a missing option would do
// something the user did not ask for.
void refuse_empty(CLI::Option* option, const std::string& names) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto check = [name](const std::string& value) -> std::string {
    if (!value.empty()) return {};
    throw Error(Code::invalid_argument,
                name + (name.starts_with('-') ? " needs a value" : " is empty"));
  };
  option->check(check, "");
}

template <typename To>
CLI::Option* add(CLI::App& app, const ToldOption& told, To& to) {
  return app.add_option(told.text.names, to, told.text.help)
      ->type_name(told.is_argument ? "" : told.text.placeholder)
      ->required(told.required);
}

}  // namespace

void Options::flag(const OptionText& text, bool& to) {
  told_.push_back({.text = text});
  app_.add_flag(text.names, to, text.help);
}

void Options::value(const OptionText& text, std::string& to) {
  told_.push_back({.text = text, .takes_value = true});
  refuse_empty(add(app_, told_.back(), to), text.names);
}

void Options::values(const OptionText& text, std::vector<std::string>& to) {
  told_.push_back({.text = text, .takes_value = true, .repeats = true});
  // One value for each option: a vector would swallow the arguments that follow.
  add(app_, told_.back(), to)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Options::argument(const OptionText& text, std::string& to, bool required) {
  told_.push_back({.text = text, .is_argument = true, .required = required});
  refuse_empty(add(app_, told_.back(), to), text.names);
}

void Options::arguments(const OptionText& text, std::vector<std::string>& to, bool required) {
  told_.push_back({.text = text, .is_argument = true, .repeats = true, .required = required});
  add(app_, told_.back(), to);
}

std::vector<ToldOption> told_by(const std::function<void(Options&)>& declare) {
  CLI::App app;
  Options options(app);
  declare(options);
  return options.told();
}

std::vector<std::string> names_of(const ToldOption& option) {
  std::vector<std::string> names;
  const std::string& text = option.text.names;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

const ToldOption* find_option(const std::vector<ToldOption>& options, const std::string& name) {
  for (const ToldOption& option : options) {
    if (option.is_argument) continue;
    const auto names = names_of(option);
    if (std::find(names.begin(), names.end(), name) != names.end()) return &option;
  }
  return nullptr;
}

}  // namespace moorage::cli

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

}  // namespace

void Options::flag(const OptionText& text, bool& to) {
  told_.push_back({.text = text});
  app_.add_flag(text.names, to, text.help);
}

void Options::value(const OptionText& text, std::string& to) {
  told_.push_back({.text = text, .takes_value = true});
  refuse_empty(app_.add_option(text.names, to, text.help)->type_name(text.placeholder), text.names);
}

void Options::values(const OptionText& text, std::vector<std::string>& to) {
  told_.push_back({.text = text, .takes_value = true, .repeats = true});
  // One value for each option: a vector would swallow the arguments that follow.
  app_.add_option(text.names, to, text.help)
      ->type_name(text.placeholder)
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Options::argument(const OptionText& text, std::string& to) {
  told_.push_back({.text = text, .is_argument = true, .required = true});
  refuse_empty(app_.add_option(text.names, to, text.help)->type_name("")->required(), text.names);
}

void Options::optional_argument(const OptionText& text, std::string& to) {
  told_.push_back({.text = text, .is_argument = true});
  refuse_empty(app_.add_option(text.names, to, text.help)->type_name(""), text.names);
}

void Options::arguments(const OptionText& text, std::vector<std::string>& to) {
  told_.push_back({.text = text, .is_argument = true, .repeats = true});
  app_.add_option(text.names, to, text.help)->type_name("");
}

void Options::required_arguments(const OptionText& text, std::vector<std::string>& to) {
  told_.push_back({.text = text, .is_argument = true, .repeats = true, .required = true});
  app_.add_option(text.names, to, text.help)->type_name("")->required();
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

@echo off
rem Finds a Python that fits and hands over to scripts\launch.py, which does the rest.
setlocal
set "root=%~dp0"
set "python="
for %%c in ("py -3.13" "py -3.12" "py -3.11" "py -3.14" "python" "python3") do (
    if not defined python (
        %%~c -c "import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))" >nul 2>nul && set "python=%%~c"
    )
)
if not defined python (
    echo start: local_tp needs Python 3.11 to 3.14 and none was found: install 3.13 from https://www.python.org/downloads/windows/ and start again
    set "code=2"
    goto failed
)
%python% "%root%scripts\launch.py" %*
set "code=%errorlevel%"
if "%code%"=="0" exit /b 0
if "%code%"=="130" exit /b 130

:failed
rem A double-clicked window would close before anybody could read why.
if not defined CI pause
exit /b %code%
